#include "server/tuning/tuning_runner.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/convert/record_codec.h"
#include "proto/model/tuning/median.h"
#include "proto/model/tuning/ranking.h"
#include "server/decision/correctness.h"
#include "server/decision/evidence.h"
#include "server/decision/race.h"

namespace convtune::tuning {
namespace {

// More than any listing has: a worker that lists more talks nonsense.
constexpr int kMaxListed = 200'000;
constexpr absl::Duration kLongestMargin = absl::Milliseconds(250);
// Candidates that a heuristic look-up prepares.
constexpr int kFirstConfigs = 3;
// The period of the looks at a busy GPU while a tuning waits for it.
constexpr absl::Duration kIdlePeriod = absl::Milliseconds(250);
// The time in microseconds that the runs of a sample add up to in a screening. A short candidate
// runs several times, since one event's step of half a microsecond may be a tenth of its time.
constexpr int kScreeningSampleUs = 12;
// Rounds of a secondary timing: enough for a 99% interval of a median, which takes eight, with two
// discarded.
constexpr int kRounds = 10;
constexpr int kFewestRounds = 8;
constexpr char kNoJudge[] = "the worker's check of results failed its self-check";

using Way = std::pair<LaunchMode, CacheState>;

// The most asked-for timings come first: the time may not be enough for all. Those behind the
// first two are taken on request.
constexpr Way kWays[] = {{LaunchMode::kGraphCapture, CacheState::kInputHot},
                         {LaunchMode::kEager, CacheState::kCold},
                         {LaunchMode::kEager, CacheState::kHot},
                         {LaunchMode::kEager, CacheState::kInputHot},
                         {LaunchMode::kGraphCapture, CacheState::kCold},
                         {LaunchMode::kGraphCapture, CacheState::kHot}};
constexpr size_t kDefaultWays = 2;

worker::v1::Request OpenRequest(const jobs::WorkSpec& spec, bool measures) {
  worker::v1::Request request;
  worker::v1::OpenProblem& open = *request.mutable_open_problem();
  open.set_problem_text(spec.key.problem_text);
  if (spec.kind == jobs::WorkKind::kFirstConfigs) {
    open.set_listing(worker::v1::LISTING_FIRST_CONFIGS);
  } else if (spec.kind == jobs::WorkKind::kTune &&
             spec.options.search == jobs::Search::kExhaustive) {
    open.set_listing(worker::v1::LISTING_EXHAUSTIVE);
  } else {
    open.set_listing(worker::v1::LISTING_HEURISTICS);
  }
  open.set_graph_api(spec.options.api != Api::kLegacy);
  // The legacy search runs what it lists, so a heuristic look-up leaves it out.
  open.set_legacy_api(spec.options.api != Api::kGraph && measures &&
                      spec.kind == jobs::WorkKind::kTune);
  // A third at most, so that what is listed can be tried.
  request.set_time_budget_ms(
      std::max<int64_t>(1, absl::ToInt64Milliseconds(spec.options.time_budget / 3)));
  open.set_max_candidates(spec.options.max_candidates);
  open.set_memory_budget_bytes(spec.options.memory_budget_bytes);
  return request;
}

// The time budget of a request that is to be over by `end`: 1 at least, since 0 is none.
int64_t MillisUntil(SteadyTime end) {
  return std::max<int64_t>(1, absl::ToInt64Milliseconds(end - SteadyTime::Now()));
}

// nullopt if the sample failed, or its time is no positive number. An unknown clock is 0.
std::optional<decision::RunSample> ReadSample(const worker::v1::Sample& sample) {
  const double clock = sample.sm_clock_mhz();
  if (!(sample.gpu_us() > 0) || !std::isfinite(sample.gpu_us())) return std::nullopt;
  return decision::RunSample{sample.gpu_us(), std::isfinite(clock) ? std::max(0.0, clock) : 0,
                             sample.blocked()};
}

// Conditions as the worker reports them; nothing is known where it cannot be read, and of the
// GPU where NVML could not be asked.
Conditions ReadConditions(const v1::Conditions& look) {
  Conditions conditions;
  if (!Read(look, &conditions).ok()) return {};
  conditions.retried_runs = std::max(0, conditions.retried_runs);
  if (!conditions.known) {
    Conditions runs;
    runs.retried_runs = conditions.retried_runs;
    runs.unblocked = std::move(conditions.unblocked);
    return runs;
  }
  if (!std::isfinite(conditions.power_limit_watts)) conditions.power_limit_watts = 0;
  return conditions;
}

// nullopt if it is no candidate. One that the legacy search refused, or whose numbers cannot be,
// is kUnsupported, any other kSkippedBudget until something is done with it.
std::optional<Candidate> ReadListed(const v1::Candidate& record) {
  Candidate listed;
  if (!Read(record, &listed).ok()) return std::nullopt;
  Candidate candidate;
  candidate.id = std::move(listed.id);
  candidate.numerical_notes = listed.numerical_notes;
  candidate.behavior_notes = listed.behavior_notes;
  const bool timed = std::isfinite(listed.find_us) && listed.find_us >= 0;
  candidate.workspace_bytes = std::max<int64_t>(0, listed.workspace_bytes);
  candidate.heuristic_rank = std::max(-1, listed.heuristic_rank);
  candidate.places = listed.places;
  candidate.find_us = timed ? listed.find_us : 0;
  candidate.error_message = std::move(listed.error_message);
  if (candidate.error_message.empty() && (!timed || listed.workspace_bytes < 0)) {
    candidate.error_message = "listed with a time or a workspace that cannot be";
  }
  candidate.status = candidate.error_message.empty() ? CandidateStatus::kSkippedBudget
                                                     : CandidateStatus::kUnsupported;
  return candidate;
}

// Rounds to two digits, upwards: candidates that differ by less are alike, and the
// index need not hold them all.
double Coarse(double error) {
  if (error <= 0) return 0;
  const double unit = std::pow(10.0, std::floor(std::log10(error)) - 1);
  return std::ceil(error / unit - 1e-6) * unit;
}

// `report` is a Checked or a Sample with an error.
void Fail(const auto& report, Candidate* candidate) {
  candidate->status =
      report.over_memory() ? CandidateStatus::kSkippedMemory : CandidateStatus::kFailed;
  candidate->error_message = report.error_message();
}

// The ways of timing in which the finalists are timed after the race, which ran eagerly with its
// caches in the state `raced`. `claims_cold`: a flush evicts what the caches held. Where it does
// not, all ways are with hot caches.
std::vector<Way> WaysOf(CacheState raced, bool all_ways, bool claims_cold) {
  std::vector<Way> taken = {{LaunchMode::kEager, raced}};
  for (size_t i = 0; i < (all_ways ? std::size(kWays) : kDefaultWays); ++i) {
    const Way way = {kWays[i].first, claims_cold ? kWays[i].second : CacheState::kHot};
    if (std::find(taken.begin(), taken.end(), way) == taken.end()) taken.push_back(way);
  }
  taken.erase(taken.begin());
  return taken;
}

// One run; see RunTuning. What a stage found out is in candidates_, tuning_ and circumstances_
// also when it ended with an error, which is the client's.
class Run {
 public:
  Run(const RunnerInput& input, WorkerClient* client)
      : input_(input),
        client_(client),
        measures_(client->measures() && input.spec.kind == jobs::WorkKind::kTune) {
    circumstances_.clock_failed = !Works(SelfCheckBit::kClock);
  }

  RunnerOutput Output() {
    output_.tuning = Go();
    for (const auto& [index, candidate] : candidates_) {
      output_.candidates.emplace(index, candidate.id);
    }
    return std::move(output_);
  }

 private:
  bool Works(SelfCheckBit instrument) const { return client_->self_check().works(instrument); }
  void Report(int done) const {
    if (input_.progress) input_.progress({done, static_cast<int>(candidates_.size())});
  }
  bool Any(const auto& is) const {
    return std::any_of(candidates_.begin(), candidates_.end(),
                       [&is](const auto& entry) { return is(entry.second); });
  }
  std::vector<const Candidate*> Of(const std::vector<int>& indexes) const {
    std::vector<const Candidate*> candidates;
    for (const int index : indexes) candidates.push_back(&candidates_.at(index));
    return candidates;
  }
  // Each API's stock choice among these.
  std::set<const Candidate*> StocksOf(const std::vector<int>& indexes) const {
    return {FirstListed(Of(indexes), Api::kGraph), FirstListed(Of(indexes), Api::kLegacy)};
  }

  absl::StatusOr<Tuning> Go() {
    const jobs::TuningOptions& options = input_.spec.options;
    if (measures_) RETURN_IF_ERROR(WaitUntilIdle());
    const SteadyTime start = SteadyTime::Now();
    output_.began = start;
    // The worker, which looks at its time between candidates, is given a little
    // less, so that as a rule it ends by itself.
    end_ = start + (options.time_budget - std::min(options.time_budget / 10, kLongestMargin));
    client_->SetEnd(start + options.time_budget);
    const absl::Status status = Try();
    client_->SetEnd(SteadyTime::InfiniteFuture());
    if (absl::IsDeadlineExceeded(status)) {
      circumstances_.cut_off = true;
    } else {
      RETURN_IF_ERROR(status);
      RETURN_IF_ERROR(client_->CloseProblem());
    }
    Tuning tuning = std::move(tuning_);
    tuning.conditions.self_check = client_->self_check().mask;
    tuning.key = input_.spec.key;
    tuning.provenance = input_.provenance;
    tuning.tune_time = absl::FromUnixMicros(absl::ToUnixMicros(input_.clock->Now()));
    tuning.elapsed = absl::Microseconds(absl::ToInt64Microseconds(SteadyTime::Now() - start));
    tuning.memory_budget_bytes = options.memory_budget_bytes;
    for (const auto& [index, candidate] : candidates_) tuning.candidates.push_back(candidate);
    decision::FinishTuning(circumstances_, &tuning);
    if (tuning.evidence == Evidence::kNone) return NoneRan(tuning);
    return tuning;
  }

  // Waits until no other process uses the GPU, as long as is asked for. OK also if somebody still
  // does, or NVML cannot be asked.
  absl::Status WaitUntilIdle() {
    const SteadyTime end = SteadyTime::Now() + input_.spec.options.wait_idle;
    while (SteadyTime::Now() < end) {
      worker::v1::Request request;
      request.mutable_read_conditions();
      Conditions conditions;
      const auto read = [&conditions](const worker::v1::Reply& reply) {
        conditions = ReadConditions(reply.conditions());
      };
      RETURN_IF_ERROR(client_->Call(request, read).status());
      if (!conditions.contended()) break;
      if (client_->Pause(std::min(kIdlePeriod, end - SteadyTime::Now()))) {
        return absl::CancelledError("cancelled");
      }
    }
    return absl::OkStatus();
  }

  absl::Status Try() {
    RETURN_IF_ERROR(List(input_.spec.kind));
    RETURN_IF_ERROR(Prepare());
    const auto of_mode_a = [](const Candidate& c) { return c.usable() && c.places.mode_a > 0; };
    if (circumstances_.first_configs_only && !Any(of_mode_a)) RETURN_IF_ERROR(AskModeB());
    return measures_ ? Measure() : absl::OkStatus();
  }

  absl::Status List(jobs::WorkKind kind) {
    std::set<CandidateId> seen;
    bool nonsense = false;
    circumstances_.one_api = measures_ && input_.spec.options.api != Api::kAny;
    circumstances_.first_configs_only = input_.spec.kind == jobs::WorkKind::kFirstConfigs;
    jobs::WorkSpec spec = input_.spec;
    spec.kind = kind;
    const auto take = [&](const worker::v1::Reply& reply) {
      std::optional<Candidate> candidate = ReadListed(reply.listed());
      if (!candidate || candidates_.size() >= kMaxListed) {
        nonsense = true;
        return;
      }
      if (!seen.insert(candidate->id).second) return;
      const auto quarantined = input_.quarantined.find(candidate->id);
      if (quarantined != input_.quarantined.end()) {
        candidate->status = CandidateStatus::kQuarantined;
        candidate->error_message = quarantined->second.message;
      }
      candidates_.emplace(reply.index(), *std::move(candidate));
    };
    ASSIGN_OR_RETURN(const worker::v1::Outcome outcome,
                     client_->Call(OpenRequest(spec, client_->measures()), take));
    if (nonsense) return absl::FailedPreconditionError("the worker lists what is no candidate");
    circumstances_.listing_cut = outcome.out_of_time() || outcome.truncated();
    circumstances_.find_left_out = outcome.find_left_out();
    return absl::OkStatus();
  }

  absl::Status Prepare() {
    worker::v1::Request request;
    request.mutable_prepare();
    int done = 0;
    // Legacy algorithms first: they are quick to prepare, plans may not be. Last
    // those that are compiled, which may take seconds each.
    enum class Turn { kLegacy, kPlan, kCompiled };
    const auto turn_of = [](const Candidate& candidate) {
      if (ApiOf(candidate.id) == Api::kLegacy) return Turn::kLegacy;
      return candidate.has(BehaviorNote::kRuntimeCompilation) ? Turn::kCompiled : Turn::kPlan;
    };
    for (const Turn turn : {Turn::kLegacy, Turn::kPlan, Turn::kCompiled}) {
      for (const auto& [index, candidate] : candidates_) {
        if (turn_of(candidate) != turn) continue;
        if (candidate.status == CandidateStatus::kSkippedBudget &&
            !input_.left_out.contains(candidate.id)) {
          request.add_indexes(index);
        } else {
          ++done;
        }
      }
    }
    Report(done);
    if (request.indexes().empty()) return absl::OkStatus();
    if (circumstances_.first_configs_only) {
      request.mutable_prepare()->set_stop_after(kFirstConfigs);
    }
    // Plans may take long to build: half of the time is kept for timing them.
    request.set_time_budget_ms(measures_ ? std::max<int64_t>(1, MillisUntil(end_) / 2)
                                         : MillisUntil(end_));
    const auto take = [this, &done](const worker::v1::Reply& reply) {
      const worker::v1::Prepared& prepared = reply.prepared();
      const auto found = candidates_.find(reply.index());
      if (found == candidates_.end()) return;
      Candidate& candidate = found->second;
      const bool sound = prepared.workspace_bytes() >= 0;
      candidate.workspace_bytes = sound ? prepared.workspace_bytes() : 0;
      candidate.error_message =
          sound ? prepared.error_message() : "prepared with a workspace that cannot be";
      candidate.status = prepared.ok() && sound   ? CandidateStatus::kFinalized
                         : prepared.over_memory() ? CandidateStatus::kSkippedMemory
                                                  : CandidateStatus::kUnsupported;
      Report(++done);
    };
    return client_->Call(request, take).status();
  }

  // What mode B lists comes before FALLBACK's. It takes long to ask, so that a heuristic look-up
  // asks it only where nothing of mode A's can be had.
  absl::Status AskModeB() {
    RETURN_IF_ERROR(client_->CloseProblem());
    std::map<int, Candidate> without = std::exchange(candidates_, {});
    absl::Status status = List(jobs::WorkKind::kListAll);
    if (status.ok()) status = Prepare();
    if (absl::IsDeadlineExceeded(status)) candidates_ = std::move(without);
    return status;
  }

  absl::Status Measure() {
    SteadyTime now = SteadyTime::Now();
    absl::Status status = Check(now + (end_ - now) / 2);
    if (!status.ok() && !absl::IsDeadlineExceeded(status)) return status;
    now = SteadyTime::Now();
    const absl::Status raced =
        Race(status.ok() ? now + (end_ - now) * 4 / 5 : SteadyTime::InfinitePast());
    if (status.ok()) status = raced;
    if (status.ok()) status = TimeSecondary();
    // Where nothing could be timed, that they can be had is all that is known.
    if (Any([](const Candidate& c) { return c.timed(); })) {
      for (auto& [index, candidate] : candidates_) {
        if (candidate.status == CandidateStatus::kFinalized) {
          candidate.status = CandidateStatus::kSkippedBudget;
        }
      }
    }
    circumstances_.race_cut = tuning_.stop_reason == StopReason::kBudget;
    return status;
  }

  // Runs each candidate that is kFinalized once, each API's stock choice first and then in the
  // order of cuDNN's heuristic, and judges what it computed: kFailed if it did not run,
  // kQuarantined if its result is wrong, kUnjudged if that could not be found out, but for the
  // stock choices, which stay what others are compared with.
  absl::Status Check(SteadyTime end) {
    std::vector<int> indexes;
    for (const auto& [index, candidate] : candidates_) {
      if (candidate.status == CandidateStatus::kFinalized) indexes.push_back(index);
    }
    if (indexes.empty()) return absl::OkStatus();
    std::stable_sort(indexes.begin(), indexes.end(), [this](int a, int b) {
      return HeuristicBefore(candidates_.at(a), candidates_.at(b));
    });
    // First what the others have to beat.
    std::stable_partition(indexes.begin(), indexes.end(),
                          [&, stocks = StocksOf(indexes)](int index) {
                            return stocks.contains(&candidates_[index]);
                          });
    worker::v1::Request request;
    request.mutable_check();
    request.mutable_indexes()->Add(indexes.begin(), indexes.end());
    request.set_time_budget_ms(MillisUntil(end));
    absl::Status status =
        client_->Call(request, [this](const worker::v1::Reply& reply) { TakeChecked(reply); })
            .status();
    Judge();
    LeaveHopeless();
    return status;
  }

  void TakeChecked(const worker::v1::Reply& reply) {
    const worker::v1::Checked& checked = reply.checked();
    const auto found = candidates_.find(reply.index());
    if (found == candidates_.end() || found->second.status != CandidateStatus::kFinalized) return;
    Candidate& candidate = found->second;
    if (!checked.error_message().empty()) return Fail(checked, &candidate);
    if (checked.has_error() && std::isfinite(checked.error()) && checked.error() >= 0) {
      candidate.error = static_cast<float>(Coarse(checked.error()));  // as records keep it
    }
    if (v1::CaptureSupport_IsValid(checked.capture())) {
      candidate.capture = static_cast<CaptureSupport>(checked.capture());
    }
    reports_[reply.index()] = checked;
  }

  // Says of all that ran whether their results are right. Candidates that were quarantined before
  // vote as they did then.
  void Judge() {
    std::vector<int> ran;
    for (const auto& [index, report] : reports_) ran.push_back(index);
    const std::set<const Candidate*> stocks = StocksOf(ran);
    const bool may_judge = Works(SelfCheckBit::kChecker);
    std::vector<decision::OutputVerdict> verdicts;
    std::vector<decision::Vote> votes;
    for (const int index : ran) {
      const Candidate& candidate = candidates_.at(index);
      verdicts.push_back(decision::JudgeOutput(input_.spec.problem, candidate, reports_.at(index)));
      votes.push_back({candidate.id, stocks.contains(&candidate), verdicts.back().fault});
    }
    for (const auto& [index, candidate] : candidates_) {
      if (candidate.status != CandidateStatus::kQuarantined) continue;
      const auto entry = input_.quarantined.find(candidate.id);
      if (entry != input_.quarantined.end()) {
        votes.push_back({candidate.id, false, entry->second.reason});
      }
    }
    const std::vector<bool> doubted = decision::DoubtedFaults(votes);
    decision::Doubt& doubt = circumstances_.doubt;
    bool any_right = false;
    for (size_t i = 0; i < ran.size(); ++i) {
      Candidate& candidate = candidates_.at(ran[i]);
      const decision::OutputVerdict& verdict = verdicts[i];
      if (may_judge && !verdict.fault) {
        any_right = true;
        racers_.push_back(ran[i]);
        if (verdict.uses_tf32) candidate.numerical_notes |= NoteBit(NumericalNote::kTensorCore);
      } else if (!may_judge || doubted[i]) {
        ++doubt.candidates;
        if (stocks.contains(&candidate)) {
          (ApiOf(candidate.id) == Api::kGraph ? doubt.graph_stock : doubt.legacy_stock) = true;
          racers_.push_back(ran[i]);
        } else {
          candidate.status = CandidateStatus::kUnjudged;
          candidate.error_message =
              may_judge ? absl::StrCat("not believed: ", verdict.message) : kNoJudge;
        }
        if (!doubt.why.empty()) continue;
        doubt.why = may_judge ? absl::StrCat(ToText(candidate.id), " ", verdict.message,
                                             "; more than a quarter of the engines, a whole API or "
                                             "a stock choice show this, so the check is doubted")
                              : kNoJudge;
      } else {
        candidate.status = CandidateStatus::kQuarantined;
        candidate.error_message = verdict.message;
        QuarantineEntry& entry = output_.wrong.emplace_back();
        entry.candidate = candidate.id;
        entry.reason = *verdict.fault;
        entry.message = verdict.message;
        entry.checker_version = client_->hello().checker_version();
      }
    }
    doubt.none_is_right = doubt.candidates > 0 && !any_right;
    if (doubt.none_is_right) racers_.clear();
  }

  // What was given up after its first run does not race: that run is its only sample.
  void LeaveHopeless() {
    std::erase_if(racers_, [this](int index) {
      const worker::v1::Checked& report = reports_.at(index);
      const double gpu_us = report.gpu_us();
      if (!report.hopeless() || !(gpu_us > 0) || !std::isfinite(gpu_us)) return false;
      Candidate& candidate = candidates_.at(index);
      candidate.status = CandidateStatus::kTimed;
      candidate.samples_ns = {SampleNs(gpu_us)};
      SummarizeSamples(&candidate);
      return true;
    });
  }

  // Races racers_ until the race is decided or `end` comes. Where there was no time to take any
  // sample, the runs of the check stand in, which are better than nothing.
  absl::Status Race(SteadyTime end) {
    // What the caches hold in all samples: x, or everything where a flush does nothing.
    tuning_.cache_state = Works(SelfCheckBit::kCaches) ? CacheState::kInputHot : CacheState::kHot;
    if (racers_.empty()) return absl::OkStatus();
    // Each API's stock choice stays to the end.
    const std::set<const Candidate*> stay = StocksOf(racers_);
    const std::vector<const Candidate*> all = Of(racers_);
    const Candidate* const stock = FirstListed(all, Api::kAny);
    std::vector<decision::Contender> contenders;
    for (const Candidate* candidate : all) {
      contenders.push_back({decision::ContestsOf(*candidate, stock), stay.contains(candidate)});
    }
    race_ = decision::Race(std::move(contenders));
    absl::Status status = RunRounds(end);
    if (absl::IsDeadlineExceeded(status)) tuning_.stop_reason = StopReason::kBudget;
    if (tuning_.rounds == 0) {
      for (const auto& [index, checked] : reports_) {
        worker::v1::Sample sample;
        sample.set_gpu_us(checked.gpu_us());
        sample.set_host_us(checked.host_us());
        TakeSample(index, sample);
      }
    }
    DropOtherKind();
    std::vector<Candidate*> racers;
    for (const int index : racers_) racers.push_back(&candidates_.at(index));
    race_.WriteTimes(racers);
    for (const int index : racers_) {
      Candidate& candidate = candidates_.at(index);
      if (!candidate.timed()) continue;
      candidate.host_us = Median(host_us_[index]);
      // All of its samples were discarded.
      if (candidate.sample_count == 0) candidate.status = CandidateStatus::kSkippedBudget;
    }
    return status;
  }

  absl::Status RunRounds(SteadyTime end) {
    while (true) {
      DropOtherKind();
      const decision::RaceStep step = race_.Next();
      tuning_.stop_reason = step.stop;
      if (step.stop != StopReason::kNone) return absl::OkStatus();
      tuning_.stop_reason = StopReason::kBudget;
      if (SteadyTime::Now() >= end) return absl::OkStatus();
      worker::v1::Request request;
      worker::v1::Measure& measure = *request.mutable_measure();
      for (const size_t number : step.runners) request.add_indexes(racers_[number]);
      measure.set_rounds(step.rounds);
      measure.set_first_round(race_.rounds());
      measure.set_cache_state(static_cast<v1::CacheState>(tuning_.cache_state));
      if (step.screening) measure.set_sample_us(kScreeningSampleUs);
      request.set_time_budget_ms(MillisUntil(end));
      const auto take = [this](const worker::v1::Reply& reply) {
        if (reply.has_sample()) TakeSample(reply.index(), reply.sample());
        if (reply.has_conditions()) Merge(ReadConditions(reply.conditions()), &tuning_.conditions);
      };
      ASSIGN_OR_RETURN(const worker::v1::Outcome outcome, client_->Call(request, take));
      if (outcome.out_of_time()) return absl::OkStatus();
    }
  }

  void TakeSample(int index, const worker::v1::Sample& sample) {
    const auto found = std::find(racers_.begin(), racers_.end(), index);
    if (found == racers_.end()) return;
    const auto number = static_cast<size_t>(found - racers_.begin());
    Candidate& candidate = candidates_.at(index);
    if (!candidate.usable()) return;
    if (!sample.error_message().empty()) {
      Fail(sample, &candidate);
      race_.Leave(number);
      return;
    }
    const int round = sample.round();
    const std::optional<decision::RunSample> run = ReadSample(sample);
    if (!run || round < 0 || round >= race_.end_round()) return;
    race_.Add(number, round, *run);
    if (std::isfinite(sample.host_us()) && sample.host_us() > 0) {
      host_us_[index].push_back(sample.host_us());
    }
    candidate.status = CandidateStatus::kTimed;
    tuning_.rounds = std::max(tuning_.rounds, round + 1);
  }

  void DropOtherKind() {
    for (const size_t number : race_.LeaveOtherKind()) {
      Candidate& candidate = candidates_.at(racers_[number]);
      candidate.status = CandidateStatus::kFailed;
      candidate.error_message =
          "its times do not compare with those of most candidates: one kind was taken behind a "
          "blocking kernel, the other was not";
    }
  }

  // Times those that were still in the race when it ended in other ways than it did: as replays of
  // CUDA graphs with x in the caches, those that can be captured, and launched with cold caches; on
  // request both launches with every cache state. A way that there is no time left to take enough
  // rounds of is not written, nor is a candidate whose samples do not compare with the others' (see
  // CountsBlocked), nor are times with cold caches where the worker's flush does nothing.
  absl::Status TimeSecondary() {
    absl::Status status;
    for (const Way& way : WaysOf(tuning_.cache_state, input_.spec.options.all_timings,
                                 Works(SelfCheckBit::kCaches))) {
      if (SteadyTime::Now() >= end_) break;
      status = TimeWay(way);
      if (!status.ok()) break;
    }
    for (auto& [index, candidate] : candidates_) {
      std::sort(candidate.other_times.begin(), candidate.other_times.end(),
                [](const TimeSummary& a, const TimeSummary& b) {
                  return std::tie(a.launch, a.cache_state) < std::tie(b.launch, b.cache_state);
                });
    }
    return status;
  }

  absl::Status TimeWay(const Way& way) {
    const bool replays = way.first == LaunchMode::kGraphCapture;
    std::vector<int> indexes;
    for (const size_t number : race_.runners()) {
      const Candidate& candidate = candidates_.at(racers_[number]);
      if (!candidate.timed() || (replays && candidate.capture != CaptureSupport::kYes)) continue;
      indexes.push_back(racers_[number]);
    }
    if (indexes.empty()) return absl::OkStatus();
    worker::v1::Request request;
    request.mutable_indexes()->Add(indexes.begin(), indexes.end());
    worker::v1::Measure& measure = *request.mutable_measure();
    measure.set_rounds(kRounds);
    measure.set_launch(static_cast<v1::LaunchMode>(way.first));
    measure.set_cache_state(static_cast<v1::CacheState>(way.second));
    request.set_time_budget_ms(MillisUntil(end_));
    // Nobody leaves it for being slow: it is never asked for its next step.
    decision::Race samples(std::vector<decision::Contender>(indexes.size()));
    const auto take = [&](const worker::v1::Reply& reply) {
      if (reply.has_conditions()) Merge(ReadConditions(reply.conditions()), &tuning_.conditions);
      const auto found = std::find(indexes.begin(), indexes.end(), reply.index());
      if (!reply.has_sample() || found == indexes.end()) return;
      const worker::v1::Sample& sample = reply.sample();
      const auto number = static_cast<size_t>(found - indexes.begin());
      if (!sample.error_message().empty()) {
        Candidate& candidate = candidates_.at(reply.index());
        samples.Leave(number);
        if (replays) {
          candidate.capture = CaptureSupport::kNo;
        } else {
          candidate.status = CandidateStatus::kFailed;
          candidate.error_message = sample.error_message();
          ForgetTimes(&candidate);
        }
      } else if (const std::optional<decision::RunSample> run = ReadSample(sample);
                 run && sample.round() >= 0 && sample.round() < kRounds) {
        samples.Add(number, sample.round(), *run);
      }
    };
    const auto outcome = client_->Call(request, take);
    std::vector<Candidate> timed(indexes.size());
    std::vector<Candidate*> to;
    for (Candidate& times : timed) to.push_back(&times);
    samples.WriteTimes(to);
    for (size_t number = 0; number < indexes.size(); ++number) {
      const Candidate& times = timed[number];
      if (times.sample_count < kFewestRounds) continue;
      candidates_.at(indexes[number])
          .other_times.push_back({way.first, way.second, times.median_us, times.low_us,
                                  times.high_us, times.sample_count});
    }
    return outcome.status();
  }

  absl::Status NoneRan(const Tuning& tuning) const {
    std::map<std::string, int> counts;
    std::string first;
    for (const Candidate& candidate : tuning.candidates) {
      ++counts[std::string(Name(candidate.status))];
      if (first.empty()) first = candidate.error_message;
    }
    std::string message = absl::StrCat(circumstances_.cut_off ? "the budget ended, and " : "",
                                       "no candidate ran: ", tuning.candidates.size(), " listed");
    for (const auto& [status, count] : counts) absl::StrAppend(&message, ", ", count, " ", status);
    if (!first.empty()) absl::StrAppend(&message, "; the first: ", first);
    return absl::NotFoundError(message);
  }

  const RunnerInput& input_;
  WorkerClient* const client_;
  const bool measures_;
  SteadyTime end_ = SteadyTime::InfiniteFuture();
  std::map<int, Candidate> candidates_;         // by the worker's index
  std::map<int, worker::v1::Checked> reports_;  // by index, of those that ran in the check
  std::vector<int> racers_;                     // by index; a racer's number is its place
  std::map<int, std::vector<double>> host_us_;  // by index
  decision::Race race_{{}};
  Tuning tuning_;  // what the race says of itself
  decision::TuningCircumstances circumstances_;
  RunnerOutput output_;
};

}  // namespace

RunnerOutput RunTuning(const RunnerInput& input, WorkerClient* client) {
  return Run(input, client).Output();
}

absl::Status TryAlone(const jobs::WorkSpec& spec, const CandidateId& suspect,
                      WorkerClient* client) {
  const bool measures = client->measures();
  std::optional<int> found;
  jobs::WorkSpec alone = spec;
  // The other API's listing takes time, and the legacy one runs what it lists.
  alone.options.api = ApiOf(suspect);
  const auto look_for_it = [&](const worker::v1::Reply& reply) {
    const std::optional<Candidate> candidate = ReadListed(reply.listed());
    if (candidate && candidate->id == suspect) found = reply.index();
  };
  RETURN_IF_ERROR(client->Call(OpenRequest(alone, measures), look_for_it).status());
  if (!found) return client->CloseProblem();
  worker::v1::Request request;
  request.add_indexes(*found);
  request.set_time_budget_ms(absl::ToInt64Milliseconds(spec.options.time_budget));
  request.mutable_prepare();
  bool ready = false;
  const auto see_whether = [&](const worker::v1::Reply& reply) { ready = reply.prepared().ok(); };
  RETURN_IF_ERROR(client->Call(request, see_whether).status());
  if (ready && measures && spec.kind == jobs::WorkKind::kTune) {
    request.mutable_check();
    RETURN_IF_ERROR(client->Call(request).status());
    request.mutable_measure()->set_rounds(3);
    RETURN_IF_ERROR(client->Call(request).status());
  }
  return client->CloseProblem();
}

}  // namespace convtune::tuning
