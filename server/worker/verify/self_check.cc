#include "server/worker/verify/self_check.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"

namespace convtune::worker::verify {
namespace {

constexpr double kEventToleranceUs = 5;
constexpr double kTimerTolerance = 0.01;
// Launching is in both times, and the memory of an H200 is nearly as fast as its L2.
constexpr double kLeastColdRatio = 1.1;
// The rate of a flush by the card's own bandwidth. L2 may answer half of a flush.
constexpr double kLeastFlushShare = 0.1;
constexpr double kMostFlushShare = 1.5;

// How long the GPU is kept at work before its clock is read: an idle GPU's clocks
// are low, and launches take longer.
constexpr absl::Duration kWarmUp = absl::Milliseconds(50);
constexpr absl::Duration kReleaseAfter = absl::Milliseconds(2);
constexpr absl::Duration kShortDelay = absl::Microseconds(50);
constexpr absl::Duration kLongDelay = absl::Microseconds(500);
constexpr absl::Duration kClockWindow = absl::Milliseconds(50);
constexpr absl::Duration kBlockTimeout = absl::Milliseconds(200);
// A delay is as long as the shortest of these: a host that is kept from
// launching makes it longer, nothing makes it shorter.
constexpr int kDelays = 10;
// A stamp is taken anew if the host cannot say when it was taken to this.
constexpr double kSharpUs = 250;
constexpr int kStampAttempts = 5;
// Reads that are queued at once to keep the GPU at work.
constexpr int kReadsAtOnce = 64;
constexpr int kCacheSamples = 5;

double Micros(absl::Duration duration) { return absl::ToDoubleMicroseconds(duration); }

double MicrosSince(SteadyTime start) { return Micros(SteadyTime::Now() - start); }

std::string Rounded(double value) { return absl::StrFormat("%.4g", value); }

// What trying an instrument came to.
struct Finding {
  std::string fault;  // why it does not work; empty if it does
  std::string seen;   // what was read, in words
};

// Reads memory behind a blocking kernel that is released after a while.
absl::StatusOr<Finding> TryBlockingKernel(const SelfCheckDevice& card) {
  timing::TimedStream& stream = *card.stream;
  ASSIGN_OR_RETURN(const timing::MemorySpan memory, card.memory());
  RETURN_IF_ERROR(stream.Synchronize());
  RETURN_IF_ERROR(stream.Block(kBlockTimeout));
  const SteadyTime queued = SteadyTime::Now();
  const auto queue = [&]() -> absl::Status {
    RETURN_IF_ERROR(stream.Record(0));
    RETURN_IF_ERROR(stream.Read(memory.data, memory.bytes));
    return stream.Record(1);
  };
  const absl::Status status = queue();
  if (status.ok()) absl::SleepFor(kReleaseAfter);
  const double waited_us = MicrosSince(queued);
  // Whatever happened: nothing may stay blocked.
  stream.Release();
  RETURN_IF_ERROR(stream.Synchronize());
  RETURN_IF_ERROR(status);
  const bool gave_up = stream.GaveUp();
  ASSIGN_OR_RETURN(const double read_us, stream.ElapsedUs(0, 1));
  Finding finding;
  finding.seen =
      absl::StrCat("waited ", Rounded(waited_us), " us, then read for ", Rounded(read_us), " us");
  // Written so that what is no number fails.
  if (gave_up) {
    finding.fault = "it gave up before it was released";
  } else if (!(read_us > 0 && read_us < waited_us / 2)) {
    finding.fault = "the wait is in the time of what waited";
  }
  return finding;
}

// The shortest time, by events, of a blocking kernel that nobody releases, with this limit.
absl::StatusOr<double> TimeDelay(absl::Duration limit, timing::TimedStream* stream) {
  double shortest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kDelays; ++i) {
    RETURN_IF_ERROR(stream->Synchronize());
    RETURN_IF_ERROR(stream->Record(0));
    RETURN_IF_ERROR(stream->Block(limit));
    RETURN_IF_ERROR(stream->Record(1));
    RETURN_IF_ERROR(stream->Synchronize());
    ASSIGN_OR_RETURN(const double us, stream->ElapsedUs(0, 1));
    shortest = std::min(shortest, us);
  }
  return shortest;
}

struct Sighting {
  SteadyTime before = SteadyTime::InfinitePast();
  SteadyTime after = SteadyTime::InfinitePast();
};

// Puts a stamp, waits for it, and says when it was taken.
absl::StatusOr<Sighting> SeeStamp(int slot, timing::TimedStream* stream) {
  Sighting sighting;
  for (int attempt = 0; attempt < kStampAttempts; ++attempt) {
    RETURN_IF_ERROR(stream->Synchronize());
    sighting.before = SteadyTime::Now();
    RETURN_IF_ERROR(stream->PutStamp(slot));
    RETURN_IF_ERROR(stream->Synchronize());
    sighting.after = SteadyTime::Now();
    if (Micros(sighting.after - sighting.before) <= kSharpUs) break;
  }
  return sighting;
}

// Keeps the GPU at work until its clocks are up.
absl::Status RaiseClocks(const SelfCheckDevice& card) {
  ASSIGN_OR_RETURN(const timing::MemorySpan memory, card.memory());
  const SteadyTime start = SteadyTime::Now();
  while (SteadyTime::Now() - start < kWarmUp) {
    for (int i = 0; i < kReadsAtOnce; ++i) {
      RETURN_IF_ERROR(card.stream->Read(memory.data, memory.bytes));
    }
    RETURN_IF_ERROR(card.stream->Synchronize());
  }
  return absl::OkStatus();
}

absl::StatusOr<Finding> TryClock(const SelfCheckDevice& card) {
  timing::TimedStream* const stream = card.stream;
  RETURN_IF_ERROR(RaiseClocks(card));
  ASSIGN_OR_RETURN(const double short_us, TimeDelay(kShortDelay, stream));
  ASSIGN_OR_RETURN(const double long_us, TimeDelay(kLongDelay, stream));
  ASSIGN_OR_RETURN(const Sighting first, SeeStamp(0, stream));
  absl::SleepFor(kClockWindow);
  ASSIGN_OR_RETURN(const Sighting second, SeeStamp(1, stream));
  // Between the two stamps: what the host saw at least and at most, and by globaltimer.
  const double host_least_us = Micros(second.before - first.after);
  const double host_most_us = Micros(second.after - first.before);
  const Stamp begin = stream->ReadStamp(0);
  const Stamp end = stream->ReadStamp(1);
  if (begin.timer_ns == 0 || end.timer_ns == 0) {
    return absl::InternalError("globaltimer stands still, or no block ran on SM 0");
  }
  const double card_us =
      (static_cast<double>(end.timer_ns) - static_cast<double>(begin.timer_ns)) / 1e3;
  Finding finding;
  finding.seen =
      absl::StrCat("delays of ", Rounded(Micros(kShortDelay)), " and ", Rounded(Micros(kLongDelay)),
                   " us: ", Rounded(short_us), " and ", Rounded(long_us),
                   " us by events; between two stamps: ", Rounded(card_us), " us by globaltimer, ",
                   Rounded(host_least_us), " to ", Rounded(host_most_us), " us by the host");
  // The time of launching is in both delays, and cancels out in the difference.
  const double difference = long_us - short_us;
  if (!(std::abs(difference - Micros(kLongDelay - kShortDelay)) <= kEventToleranceUs &&
        short_us >= Micros(kShortDelay) - kEventToleranceUs)) {
    finding.fault = "events do not agree with delays of known length";
  } else if (!(card_us >= host_least_us * (1 - kTimerTolerance) &&
               card_us <= host_most_us * (1 + kTimerTolerance))) {
    finding.fault = "globaltimer does not agree with the host's clock";
  }
  return finding;
}

// The shortest of a few samples, each the mean of some runs.
absl::StatusOr<double> TimeWork(const timing::TimedWork& work, timing::TimedStream* stream) {
  double shortest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kCacheSamples; ++i) {
    ASSIGN_OR_RETURN(const TimedRun run, timing::TakeSample(work, stream));
    shortest = std::min(shortest, run.gpu_us);
  }
  return shortest;
}

absl::StatusOr<Finding> TryCaches(bool blocking_kernel, const SelfCheckDevice& card) {
  timing::TimedStream* const stream = card.stream;
  ASSIGN_OR_RETURN(const timing::MemorySpan memory, card.memory());
  if (card.flush_bytes <= 0) return absl::InternalError("the size of the L2 cache is not known");
  timing::TimedWork work;
  work.block_attempts = blocking_kernel ? timing::BlockingPolicy::kAttempts : 0;
  work.expected.gpu_us = 10;
  work.launch = [&](int) { return stream->Read(memory.data, memory.bytes); };
  work.cache_state = CacheState::kHot;
  ASSIGN_OR_RETURN(const double hot_us, TimeWork(work, stream));
  work.cache_state = CacheState::kCold;
  ASSIGN_OR_RETURN(const double cold_us, TimeWork(work, stream));
  work.cache_state = CacheState::kHot;
  work.launch = [stream](int) { return stream->Flush(0); };
  ASSIGN_OR_RETURN(const double flush_us, TimeWork(work, stream));
  const double memory_rate = card.memory_bytes_per_second;
  const double flush_rate = static_cast<double>(card.flush_bytes) / flush_us * 1e6;
  Finding finding;
  finding.seen = absl::StrCat(memory.bytes, " bytes: ", Rounded(hot_us), " us hot, ",
                              Rounded(cold_us), " us after a flush; a flush of ", card.flush_bytes,
                              " bytes: ", Rounded(flush_us), " us; memory of ",
                              Rounded(memory_rate / 1e12), " TB/s");
  const double share = flush_rate / memory_rate;
  if (!(hot_us > 0 && cold_us / hot_us >= kLeastColdRatio)) {
    finding.fault = "reading is as fast after a flush as before it";
  } else if (memory_rate > 0 && !(share >= kLeastFlushShare && share <= kMostFlushShare)) {
    finding.fault = absl::StrCat("a flush at ", Rounded(flush_rate / 1e12), " TB/s");
  }
  return finding;
}

std::string FaultOf(PlantedFault fault, const worker::v1::Checked& look) {
  switch (fault) {
    case PlantedFault::kNothing:
      return look.out_of_bounds().empty() && look.nonfinite() == 0 && look.error() == 0
                 ? ""
                 : "the right output was found wrong";
    case PlantedFault::kByteBehind:
      return !look.out_of_bounds().empty() ? "" : "a byte behind the output was not found";
    case PlantedFault::kNan:
      return look.nonfinite() == 1 ? "" : "a NaN was not found";
    case PlantedFault::kWrongElement:
      return look.error() > 0 ? "" : "a wrong element was not found";
  }
  return "a fault that nobody knows";
}

absl::StatusOr<Finding> TryChecker(const SelfCheckDevice& card) {
  Finding finding;
  for (const PlantedFault fault : {PlantedFault::kNothing, PlantedFault::kByteBehind,
                                   PlantedFault::kNan, PlantedFault::kWrongElement}) {
    ASSIGN_OR_RETURN(const worker::v1::Checked look, card.look(fault));
    finding.fault = FaultOf(fault, look);
    if (!finding.fault.empty()) break;
  }
  return finding;
}

// The convolution is one of small integers, whose result is right to the last bit or wrong.
absl::StatusOr<Finding> TryCaptures(const SelfCheckDevice& card) {
  ASSIGN_OR_RETURN(const worker::v1::Checked run, card.run_after_spoilt_capture());
  Finding finding;
  if (!run.out_of_bounds().empty()) {
    finding.fault = absl::StrCat("wrote out of bounds: ", run.out_of_bounds());
  } else if (run.nonfinite() > 0) {
    finding.fault = absl::StrCat(run.nonfinite(), " elements are not finite");
  } else if (!run.has_error()) {
    finding.fault = "nothing could be compared";
  } else if (run.error() != 0) {
    finding.fault =
        absl::StrCat("the result is off by ", Rounded(run.error()), " of its largest value");
  }
  return finding;
}

}  // namespace

absl::StatusOr<SelfCheck> RunSelfCheck(uint32_t lost_steps,
                                       const std::function<absl::Status(uint32_t step)>& on_step,
                                       const SelfCheckDevice& card) {
  const SteadyTime start = SteadyTime::Now();
  SelfCheck check{MaskOf(SelfCheckBit::kRun), ""};
  struct Step {
    SelfCheckBit bit;
    const char* name;
    std::function<absl::StatusOr<Finding>()> attempt;
  };
  // Captures last: a capture that is spoilt on purpose may spoil what comes after it.
  const Step steps[] = {
      {SelfCheckBit::kBlockingKernel, "blocking kernel", [&] { return TryBlockingKernel(card); }},
      {SelfCheckBit::kClock, "clock", [&] { return TryClock(card); }},
      {SelfCheckBit::kCaches, "caches",
       [&] { return TryCaches(check.works(SelfCheckBit::kBlockingKernel), card); }},
      {SelfCheckBit::kChecker, "checker", [&] { return TryChecker(card); }},
      {SelfCheckBit::kCaptures, "captures", [&] { return TryCaptures(card); }}};
  for (const auto& [bit, name, attempt] : steps) {
    Finding finding{"a worker died or hung in this step", ""};
    if ((lost_steps & MaskOf(bit)) == 0) {
      RETURN_IF_ERROR(on_step(MaskOf(bit)));
      const absl::StatusOr<Finding> tried = attempt();
      finding = tried.ok() ? *tried : Finding{std::string(tried.status().message()), ""};
      if (!tried.ok() && finding.fault.empty()) finding.fault = tried.status().ToString();
    }
    if (!finding.fault.empty()) check.mask |= MaskOf(bit);
    absl::StrAppend(&check.details, name, ": ", finding.fault.empty() ? "works" : finding.fault,
                    finding.seen.empty() ? "" : absl::StrCat(" (", finding.seen, ")"), "\n");
  }
  absl::StrAppend(&check.details, "took ", Rounded(MicrosSince(start) / 1e6), " s");
  return check;
}

}  // namespace convtune::worker::verify
