#include "server/tuning/secondary_timings.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

#include "proto/base/clock.h"
#include "server/decision/race.h"
#include "server/decision/samples.h"
#include "server/tuning/worker_requests.h"

namespace convtune::tuning {
namespace {

// Enough for a 99% interval of a median, which takes eight, with two discarded.
constexpr int kRounds = 10;
constexpr int kFewestRounds = 8;

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

// Without the race's, whose caches were `raced`. `claims_cold`: a flush evicts what the caches
// held. Without one there are only hot caches, whatever is asked for.
std::vector<Way> WaysOf(CacheState raced, bool all_ways, bool claims_cold) {
  std::vector<Way> taken = {{LaunchMode::kEager, raced}};
  for (size_t i = 0; i < (all_ways ? std::size(kWays) : kDefaultWays); ++i) {
    const Way way = {kWays[i].first, claims_cold ? kWays[i].second : CacheState::kHot};
    if (std::find(taken.begin(), taken.end(), way) == taken.end()) taken.push_back(way);
  }
  taken.erase(taken.begin());
  return taken;
}

void Take(const worker::v1::Sample& sample, bool replays, decision::Series* series,
          Candidate* candidate) {
  if (!sample.error_message().empty()) {
    series->assign(kRounds, decision::RunSample());
    if (replays) {
      candidate->capture = CaptureSupport::kNo;
    } else {
      candidate->status = CandidateStatus::kFailed;
      candidate->error_message = sample.error_message();
      ForgetTimes(candidate);
    }
    return;
  }
  const std::optional<decision::RunSample> run = ReadSample(sample);
  if (!std::isfinite(sample.sm_clock_mhz()) || !run) return;
  if (sample.round() < 0 || sample.round() >= kRounds) return;
  (*series)[static_cast<size_t>(sample.round())] = *run;
}

absl::Status TimeWay(const Way& way, const std::vector<int>& finalists, SteadyTime end,
                     std::map<int, Candidate>* candidates, Conditions* conditions,
                     supervisor::WorkerClient* client) {
  const bool replays = way.first == LaunchMode::kGraphCapture;
  worker::v1::Request request;
  std::map<int, size_t> numbers;  // by index
  for (const int index : finalists) {
    const Candidate& candidate = candidates->at(index);
    if (!candidate.timed() || (replays && candidate.capture != CaptureSupport::kYes)) continue;
    request.add_indexes(index);
    numbers.emplace(index, numbers.size());
  }
  if (numbers.empty()) return absl::OkStatus();
  worker::v1::Measure& measure = *request.mutable_measure();
  measure.set_rounds(kRounds);
  measure.set_launch(static_cast<v1::LaunchMode>(way.first));
  measure.set_cache_state(static_cast<v1::CacheState>(way.second));
  request.set_time_budget_ms(MillisUntil(end));
  std::vector<decision::Series> series(numbers.size(), decision::Series(kRounds));
  const auto outcome = client->Call(request, [&](const worker::v1::Reply& reply) {
    if (reply.has_conditions()) Merge(ReadConditions(reply.conditions()), conditions);
    const auto found = numbers.find(reply.index());
    if (!reply.has_sample() || found == numbers.end()) return;
    Take(reply.sample(), replays, &series[found->second], &candidates->at(reply.index()));
  });
  decision::DiscardOtherKind(&series);
  decision::DiscardSlowClocks(&series);
  const std::vector<decision::TimeEstimate> estimates = decision::Summarize(series);
  for (const auto& [index, number] : numbers) {
    const decision::TimeEstimate& estimate = estimates[number];
    if (estimate.sample_count < kFewestRounds) continue;
    candidates->at(index).other_times.push_back({way.first, way.second, estimate.median_us,
                                                 estimate.low_us, estimate.high_us,
                                                 estimate.sample_count});
  }
  return outcome.status();
}

}  // namespace

absl::Status TimeSecondary(const std::vector<int>& finalists, bool all_ways, SteadyTime end,
                           std::map<int, Candidate>* candidates, Tuning* tuning,
                           supervisor::WorkerClient* client) {
  absl::Status status;
  const bool claims_cold = client->self_check().works(SelfCheckBit::kCaches);
  for (const Way& way : WaysOf(tuning->cache_state, all_ways, claims_cold)) {
    if (SteadyTime::Now() >= end) break;
    status = TimeWay(way, finalists, end, candidates, &tuning->conditions, client);
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
