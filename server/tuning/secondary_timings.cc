#include "server/tuning/secondary_timings.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "proto/base/clock.h"
#include "server/decision/race.h"
#include "server/decision/samples.h"
#include "server/tuning/worker_requests.h"

namespace convtune::tuning {
namespace {

// Enough for a 99% interval of a median, which takes eight, with two discarded.
constexpr int kRounds = 10;
constexpr int kFewestRounds = 8;

struct Way {
  LaunchMode launch;
  CacheState cache_state;
};

// The most asked-for timings come first: the time may not be enough for all.
constexpr Way kDefaultWays[] = {{LaunchMode::kGraphCapture, CacheState::kInputHot},
                                {LaunchMode::kEager, CacheState::kCold}};
constexpr Way kWaysOnRequest[] = {{LaunchMode::kEager, CacheState::kHot},
                                  {LaunchMode::kEager, CacheState::kInputHot},
                                  {LaunchMode::kGraphCapture, CacheState::kCold},
                                  {LaunchMode::kGraphCapture, CacheState::kHot}};

// `claims_cold`: a flush evicts what the caches held. Without one there are only
// hot caches, whatever is asked for.
std::vector<Way> WaysOf(const SecondaryTimingsPlan& plan, bool claims_cold) {
  std::vector<Way> ways(std::begin(kDefaultWays), std::end(kDefaultWays));
  if (plan.all_ways) {
    ways.insert(ways.end(), std::begin(kWaysOnRequest), std::end(kWaysOnRequest));
  }
  std::vector<Way> taken = {{LaunchMode::kEager, plan.raced}};
  for (Way way : ways) {
    if (!claims_cold) way.cache_state = CacheState::kHot;
    const bool known = std::any_of(taken.begin(), taken.end(), [&way](const Way& other) {
      return other.launch == way.launch && other.cache_state == way.cache_state;
    });
    if (!known) taken.push_back(way);
  }
  taken.erase(taken.begin());
  return taken;
}

class Takes {
 public:
  Takes(const Way& way, const std::vector<int>& indexes, std::map<int, Candidate>* candidates)
      : way_(way),
        indexes_(indexes),
        candidates_(candidates),
        series_(indexes.size(), decision::Series(kRounds)) {}

  void Add(int index, const worker::v1::Sample& sample) {
    const auto found = std::find(indexes_.begin(), indexes_.end(), index);
    if (found == indexes_.end()) return;
    Candidate& candidate = candidates_->at(index);
    const auto number = static_cast<size_t>(found - indexes_.begin());
    if (!sample.error_message().empty()) {
      series_[number].assign(kRounds, decision::RunSample());
      if (way_.launch == LaunchMode::kGraphCapture) {
        candidate.capture = CaptureSupport::kNo;
      } else {
        candidate.status = CandidateStatus::kFailed;
        candidate.error_message = sample.error_message();
        ForgetTimes(&candidate);
      }
      return;
    }
    if (!std::isfinite(sample.sm_clock_mhz())) return;
    const std::optional<decision::RunSample> run = ReadSample(sample);
    if (!run || sample.round() < 0 || sample.round() >= kRounds) return;
    series_[number][static_cast<size_t>(sample.round())] = *run;
  }

  void Write() {
    decision::DiscardOtherKind(&series_);
    decision::DiscardSlowClocks(&series_);
    const std::vector<decision::TimeEstimate> estimates = decision::Summarize(series_);
    for (size_t number = 0; number < indexes_.size(); ++number) {
      const decision::TimeEstimate& estimate = estimates[number];
      if (estimate.sample_count < kFewestRounds) continue;
      candidates_->at(indexes_[number])
          .other_times.push_back({way_.launch, way_.cache_state, estimate.median_us,
                                  estimate.low_us, estimate.high_us, estimate.sample_count});
    }
  }

 private:
  const Way way_;
  const std::vector<int> indexes_;
  std::map<int, Candidate>* const candidates_;
  std::vector<decision::Series> series_;
};

std::vector<int> RunnersOf(const Way& way, const std::vector<int>& finalists,
                           const std::map<int, Candidate>& candidates) {
  const bool replays = way.launch == LaunchMode::kGraphCapture;
  std::vector<int> runners;
  for (const int index : finalists) {
    const Candidate& candidate = candidates.at(index);
    const bool can_run = !replays || candidate.capture == CaptureSupport::kYes;
    if (candidate.timed() && can_run) runners.push_back(index);
  }
  return runners;
}

absl::Status TimeWay(const Way& way, const std::vector<int>& finalists, SteadyTime end,
                     std::map<int, Candidate>* candidates, Conditions* conditions,
                     supervisor::WorkerClient* client) {
  worker::v1::Request request;
  worker::v1::Measure& measure = *request.mutable_measure();
  const std::vector<int> runners = RunnersOf(way, finalists, *candidates);
  if (runners.empty()) return absl::OkStatus();
  request.mutable_indexes()->Add(runners.begin(), runners.end());
  measure.set_rounds(kRounds);
  measure.set_launch(static_cast<v1::LaunchMode>(way.launch));
  measure.set_cache_state(static_cast<v1::CacheState>(way.cache_state));
  request.set_time_budget_ms(MillisUntil(end));
  Takes takes(way, runners, candidates);
  const auto outcome = client->Call(request, [&](const worker::v1::Reply& reply) {
    if (reply.has_sample()) takes.Add(reply.index(), reply.sample());
    if (reply.has_conditions()) Merge(ReadConditions(reply.conditions()), conditions);
  });
  takes.Write();
  return outcome.status();
}

}  // namespace

absl::Status TimeSecondary(const SecondaryTimingsPlan& plan, SteadyTime end,
                           std::map<int, Candidate>* candidates, Conditions* conditions,
                           supervisor::WorkerClient* client) {
  absl::Status status;
  for (const Way& way : WaysOf(plan, client->self_check().works(SelfCheckBit::kCaches))) {
    if (SteadyTime::Now() >= end) break;
    status = TimeWay(way, plan.finalists, end, candidates, conditions, client);
    if (!status.ok()) break;
  }
  for (auto& [index, candidate] : *candidates) {
    std::sort(candidate.other_times.begin(), candidate.other_times.end(),
              [](const TimeSummary& a, const TimeSummary& b) {
                return std::tie(a.launch, a.cache_state) < std::tie(b.launch, b.cache_state);
              });
  }
  return status;
}

}  // namespace convtune::tuning
