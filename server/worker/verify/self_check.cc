#include "server/worker/verify/self_check.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "proto/base/status_macros.h"

namespace convtune::worker::verify {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr double kEventToleranceUs = 5;
constexpr double kTimerTolerance = 0.01;
// Launching is in both times, and the memory of an H200 is nearly as fast as its L2.
constexpr double kLeastColdRatio = 1.1;
// Of the card's own bandwidth. Half of a flush may be answered by L2.
constexpr double kLeastFlushShare = 0.1;
constexpr double kMostFlushShare = 1.5;

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

double MicrosSince(SteadyClock::time_point start) {
  return std::chrono::duration<double, std::micro>(SteadyClock::now() - start).count();
}

double Micros(absl::Duration duration) { return absl::ToDoubleMicroseconds(duration); }

std::string Rounded(double value) { return absl::StrFormat("%.4g", value); }

constexpr uint32_t Bit(SelfCheckBit bit) { return static_cast<uint32_t>(bit); }

absl::StatusOr<BlockReading> ReadBlock(SelfCheckDevice* card) {
  timing::TimedStream& stream = *card->stream();
  ASSIGN_OR_RETURN(const timing::MemorySpan memory, card->Memory());
  RETURN_IF_ERROR(stream.Synchronize());
  RETURN_IF_ERROR(stream.Block(kBlockTimeout));
  const SteadyClock::time_point queued = SteadyClock::now();
  const auto queue = [&]() -> absl::Status {
    RETURN_IF_ERROR(stream.Record(0));
    RETURN_IF_ERROR(stream.Read(memory.data, memory.bytes));
    return stream.Record(1);
  };
  const absl::Status status = queue();
  if (status.ok()) absl::SleepFor(kReleaseAfter);
  BlockReading reading;
  reading.waited_us = MicrosSince(queued);
  // Whatever happened: nothing may stay blocked.
  stream.Release();
  RETURN_IF_ERROR(stream.Synchronize());
  RETURN_IF_ERROR(status);
  reading.gave_up = stream.GaveUp();
  ASSIGN_OR_RETURN(reading.read_us, stream.ElapsedUs(0, 1));
  return reading;
}

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
  SteadyClock::time_point before;
  SteadyClock::time_point after;
};

// Puts a stamp, waits for it, and says when it was taken.
absl::StatusOr<Sighting> SeeStamp(int place, timing::TimedStream* stream) {
  Sighting sighting;
  for (int attempt = 0; attempt < kStampAttempts; ++attempt) {
    RETURN_IF_ERROR(stream->Synchronize());
    sighting.before = SteadyClock::now();
    RETURN_IF_ERROR(stream->PutStamp(place));
    RETURN_IF_ERROR(stream->Synchronize());
    sighting.after = SteadyClock::now();
    if (std::chrono::duration<double, std::micro>(sighting.after - sighting.before).count() <=
        kSharpUs) {
      break;
    }
  }
  return sighting;
}

// Keeps the GPU at work until its clocks are up.
absl::Status RaiseClocks(SelfCheckDevice* card) {
  ASSIGN_OR_RETURN(const timing::MemorySpan memory, card->Memory());
  const SteadyClock::time_point start = SteadyClock::now();
  while (MicrosSince(start) < Micros(kWarmUp)) {
    for (int i = 0; i < kReadsAtOnce; ++i) {
      RETURN_IF_ERROR(card->stream()->Read(memory.data, memory.bytes));
    }
    RETURN_IF_ERROR(card->stream()->Synchronize());
  }
  return absl::OkStatus();
}

absl::StatusOr<ClockReading> ReadClock(SelfCheckDevice* card) {
  timing::TimedStream* const stream = card->stream();
  RETURN_IF_ERROR(RaiseClocks(card));
  ClockReading reading;
  ASSIGN_OR_RETURN(reading.short_us, TimeDelay(kShortDelay, stream));
  ASSIGN_OR_RETURN(reading.long_us, TimeDelay(kLongDelay, stream));

  ASSIGN_OR_RETURN(const Sighting first, SeeStamp(0, stream));
  absl::SleepFor(kClockWindow);
  ASSIGN_OR_RETURN(const Sighting second, SeeStamp(1, stream));
  const auto micros = [](SteadyClock::duration duration) {
    return std::chrono::duration<double, std::micro>(duration).count();
  };
  reading.host_least_us = micros(second.before - first.after);
  reading.host_most_us = micros(second.after - first.before);
  const Stamp begin = stream->ReadStamp(0);
  const Stamp end = stream->ReadStamp(1);
  if (begin.timer_ns == 0 || end.timer_ns == 0) {
    return absl::InternalError("globaltimer stands still, or no block ran on SM 0");
  }
  reading.card_us = (static_cast<double>(end.timer_ns) - static_cast<double>(begin.timer_ns)) / 1e3;
  return reading;
}

// The shortest of a few samples, each the mean of some runs.
absl::StatusOr<double> TimeWork(const timing::TimedWork& work, timing::Timer* timer) {
  double shortest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kCacheSamples; ++i) {
    ASSIGN_OR_RETURN(const TimedRun run, timer->Time(work));
    shortest = std::min(shortest, run.gpu_us);
  }
  return shortest;
}

absl::StatusOr<CacheReading> ReadCaches(bool blocking_kernel, SelfCheckDevice* card) {
  timing::TimedStream* const stream = card->stream();
  ASSIGN_OR_RETURN(const timing::MemorySpan memory, card->Memory());
  timing::Timer timer(stream);
  CacheReading reading;
  reading.flush_bytes = card->flush_bytes();
  reading.read_bytes = memory.bytes;
  reading.memory_bytes_per_second = card->memory_bytes_per_second();
  if (reading.flush_bytes <= 0) return absl::InternalError("the size of the L2 cache is not known");
  timing::TimedWork work;
  work.block_attempts = blocking_kernel ? timing::BlockingPolicy::kAttempts : 0;
  work.expected.gpu_us = 10;
  work.launch = [&](int) { return stream->Read(memory.data, memory.bytes); };
  work.cache_state = CacheState::kHot;
  ASSIGN_OR_RETURN(reading.hot_us, TimeWork(work, &timer));
  work.cache_state = CacheState::kCold;
  ASSIGN_OR_RETURN(reading.cold_us, TimeWork(work, &timer));
  work.cache_state = CacheState::kHot;
  work.launch = [stream](int) { return stream->Flush(0); };
  ASSIGN_OR_RETURN(reading.flush_us, TimeWork(work, &timer));
  return reading;
}

absl::StatusOr<std::string> TryChecker(SelfCheckDevice* card) {
  for (const PlantedFault fault : {PlantedFault::kNothing, PlantedFault::kByteBehind,
                                   PlantedFault::kNan, PlantedFault::kWrongElement}) {
    ASSIGN_OR_RETURN(const OutputLook look, card->Look(fault));
    std::string why = FaultOf(fault, look);
    if (!why.empty()) return why;
  }
  return "";
}

std::string Describe(const BlockReading& reading) {
  return absl::StrCat("waited ", Rounded(reading.waited_us), " us, then read for ",
                      Rounded(reading.read_us), " us");
}

std::string Describe(const ClockReading& reading) {
  return absl::StrCat(
      "delays of ", Rounded(Micros(kShortDelay)), " and ", Rounded(Micros(kLongDelay)),
      " us: ", Rounded(reading.short_us), " and ", Rounded(reading.long_us),
      " us by events; between two stamps: ", Rounded(reading.card_us), " us by globaltimer, ",
      Rounded(reading.host_least_us), " to ", Rounded(reading.host_most_us), " us by the host");
}

std::string Describe(const CacheReading& reading) {
  return absl::StrCat(reading.read_bytes, " bytes: ", Rounded(reading.hot_us), " us hot, ",
                      Rounded(reading.cold_us), " us after a flush; a flush of ",
                      reading.flush_bytes, " bytes: ", Rounded(reading.flush_us), " us; memory of ",
                      Rounded(reading.memory_bytes_per_second / 1e12), " TB/s");
}

std::string Describe(const worker::v1::Checked& /*run*/) { return ""; }

// One run; see RunSelfCheck.
class Run {
 public:
  Run(const SelfCheckOptions& options, SelfCheckDevice* card) : options_(options), card_(card) {}

  absl::StatusOr<SelfCheck> Go() {
    const SteadyClock::time_point start = SteadyClock::now();
    check_.known = true;
    RETURN_IF_ERROR(Step(
        Bit(SelfCheckBit::kBlockingKernel), "blocking kernel",
        [this] { return Judge(ReadBlock(card_)); }, &check_.blocking_kernel));
    RETURN_IF_ERROR(Step(
        Bit(SelfCheckBit::kClock), "clock", [this] { return Judge(ReadClock(card_)); },
        &check_.clock));
    RETURN_IF_ERROR(Step(
        Bit(SelfCheckBit::kCaches), "caches",
        [this] { return Judge(ReadCaches(check_.blocking_kernel, card_)); }, &check_.caches));
    RETURN_IF_ERROR(Step(
        Bit(SelfCheckBit::kChecker), "checker", [this] { return TryChecker(card_); },
        &check_.checker));
    // Last: a capture that is spoilt on purpose may spoil what comes after it.
    RETURN_IF_ERROR(Step(
        Bit(SelfCheckBit::kCaptures), "captures",
        [this] { return Judge(card_->RunAfterSpoiltCapture()); }, &check_.captures));
    absl::StrAppend(&check_.details, "took ", Rounded(MicrosSince(start) / 1e6), " s");
    return check_;
  }

 private:
  template <typename Reading>
  absl::StatusOr<std::string> Judge(const absl::StatusOr<Reading>& reading) {
    RETURN_IF_ERROR(reading.status());
    seen_ = Describe(*reading);
    return FaultOf(*reading);
  }

  absl::Status Step(uint32_t step, const std::string& name,
                    const std::function<absl::StatusOr<std::string>()>& fault, bool* works) {
    std::string why = "a worker died or hung in this step";
    seen_.clear();
    if ((options_.lost_steps & step) == 0) {
      RETURN_IF_ERROR(options_.on_step(step));
      const absl::StatusOr<std::string> found = fault();
      why = found.ok() ? *found : std::string(found.status().message());
      if (!found.ok() && why.empty()) why = found.status().ToString();
    }
    *works = why.empty();
    absl::StrAppend(&check_.details, name, ": ", why.empty() ? "works" : why,
                    seen_.empty() ? "" : absl::StrCat(" (", seen_, ")"), "\n");
    return absl::OkStatus();
  }

  const SelfCheckOptions& options_;
  SelfCheckDevice* const card_;
  SelfCheck check_;
  std::string seen_;  // the reading of the step, in words
};

}  // namespace

std::string FaultOf(const BlockReading& reading) {
  if (reading.gave_up) return "it gave up before it was released";
  // Written so that what is no number fails.
  if (!(reading.read_us > 0 && reading.read_us < reading.waited_us / 2)) {
    return "the wait is in the time of what waited";
  }
  return "";
}

std::string FaultOf(const ClockReading& reading) {
  // The time of launching is in both delays, and cancels out in the difference.
  const double difference = reading.long_us - reading.short_us;
  const double expected = Micros(kLongDelay - kShortDelay);
  if (!(std::abs(difference - expected) <= kEventToleranceUs &&
        reading.short_us >= Micros(kShortDelay) - kEventToleranceUs)) {
    return "events do not agree with delays of known length";
  }
  if (!(reading.card_us >= reading.host_least_us * (1 - kTimerTolerance) &&
        reading.card_us <= reading.host_most_us * (1 + kTimerTolerance))) {
    return "globaltimer does not agree with the host's clock";
  }
  return "";
}

std::string FaultOf(const CacheReading& reading) {
  const double ratio = reading.cold_us / reading.hot_us;
  if (!(reading.hot_us > 0 && ratio >= kLeastColdRatio)) {
    return "reading is as fast after a flush as before it";
  }
  if (reading.memory_bytes_per_second <= 0) return "";
  const double rate = static_cast<double>(reading.flush_bytes) / reading.flush_us * 1e6;
  const double share = rate / reading.memory_bytes_per_second;
  if (!(share >= kLeastFlushShare && share <= kMostFlushShare)) {
    return absl::StrCat("a flush at ", Rounded(rate / 1e12), " TB/s");
  }
  return "";
}

std::string FaultOf(const worker::v1::Checked& run) {
  if (!run.out_of_bounds().empty()) {
    return absl::StrCat("wrote out of bounds: ", run.out_of_bounds());
  }
  if (run.nonfinite() > 0) return absl::StrCat(run.nonfinite(), " elements are not finite");
  if (!run.has_error()) return "nothing could be compared";
  if (run.error() != 0) {
    return absl::StrCat("the result is off by ", Rounded(run.error()), " of its largest value");
  }
  return "";
}

std::string FaultOf(PlantedFault fault, const OutputLook& look) {
  switch (fault) {
    case PlantedFault::kNothing:
      return !look.out_of_bounds && look.nonfinite == 0 && look.error == 0
                 ? ""
                 : "the right output was found wrong";
    case PlantedFault::kByteBehind:
      return look.out_of_bounds ? "" : "a byte behind the output was not found";
    case PlantedFault::kNan:
      return look.nonfinite == 1 ? "" : "a NaN was not found";
    case PlantedFault::kWrongElement:
      return look.error > 0 ? "" : "a wrong element was not found";
  }
  return "a fault that nobody knows";
}

absl::StatusOr<SelfCheck> RunSelfCheck(const SelfCheckOptions& options, SelfCheckDevice* card) {
  return Run(options, card).Go();
}

}  // namespace convtune::worker::verify
