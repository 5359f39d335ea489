#include "client/fleet/pooling.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "client/report/report_group.h"
#include "proto/model/tuning/median.h"
#include "proto/model/tuning/ranking.h"

namespace convtune::fleet {
namespace {

// Of fewer nodes there is no MedianInterval at 95%, or it is the extremes, which one node can
// move.
constexpr size_t kSignTestNodes = 9;
constexpr double kTail = 0.025;

// Honest nodes' ratios differ by less, whatever their GPUs' temperature and clocks.
constexpr double kDeviation = 0.1;

// What the nodes say of one candidate, in the order of the nodes.
struct Voices {
  std::vector<const Candidate*> all;
  std::vector<std::pair<size_t, const Candidate*>> timed;  // by the node's place among all
};

using VoicesById = std::map<CandidateId, Voices>;

VoicesById Collect(const std::vector<const Tuning*>& tunings) {
  VoicesById voices;
  for (size_t node = 0; node < tunings.size(); ++node) {
    for (const Candidate& candidate : tunings[node]->candidates) {
      Voices& of = voices[candidate.id];
      of.all.push_back(&candidate);
      if (candidate.timed() && candidate.median_us > 0) of.timed.emplace_back(node, &candidate);
    }
  }
  return voices;
}

const Candidate* FindTimed(const Tuning& tuning, const CandidateId& id) {
  for (const Candidate& candidate : tuning.candidates) {
    if (candidate.id == id && candidate.timed() && candidate.median_us > 0) return &candidate;
  }
  return nullptr;
}

template <typename Key>
Key MostCounted(const std::map<Key, int>& counts) {
  return std::max_element(counts.begin(), counts.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

// The stock choice of most of the tunings that timed theirs; nullopt: none did.
std::optional<CandidateId> CommonStock(const std::vector<const db::fleet::NodeEvidence*>& all) {
  std::map<CandidateId, int> counts;
  for (const db::fleet::NodeEvidence* one : all) {
    const std::vector<Candidate>& candidates = one->tuning.candidates;
    const std::optional<size_t> stock = StockIndex(candidates);
    if (stock && FindTimed(one->tuning, candidates[*stock].id)) ++counts[candidates[*stock].id];
  }
  if (counts.empty()) return std::nullopt;
  return MostCounted(counts);
}

// How slow each node is: its time of the stock choice over the nodes' median. So the nodes' times
// are compared in units of each one's own.
std::vector<double> Speeds(const std::vector<const Tuning*>& tunings,
                           const std::optional<CandidateId>& stock) {
  std::vector<double> speeds(tunings.size(), 1);
  if (!stock) return speeds;
  for (size_t i = 0; i < tunings.size(); ++i) {
    speeds[i] = FindTimed(*tunings[i], *stock)->median_us;
  }
  const double middle = Median(speeds);
  for (double& speed : speeds) speed /= middle;
  return speeds;
}

// The median over nodes of times in one cache state, each as of a node of middle speed.
TimeSummary PoolTime(const std::vector<TimeSummary>& times) {
  std::vector<double> medians, lows, highs;
  int64_t samples = 0;
  for (const TimeSummary& time : times) {
    medians.push_back(time.median_us);
    lows.push_back(time.low_us);
    highs.push_back(time.high_us);
    samples += time.sample_count;
  }
  const Interval interval = times.size() >= kSignTestNodes ? MedianInterval(medians, kTail).value()
                                                           : Interval{Median(lows), Median(highs)};
  TimeSummary pooled = times.front();
  pooled.median_us = Median(medians);
  pooled.low_us = std::min(interval.low, pooled.median_us);
  pooled.high_us = std::max(interval.high, pooled.median_us);
  pooled.sample_count =
      static_cast<int>(std::min<int64_t>(samples, std::numeric_limits<int>::max()));
  return pooled;
}

// Sets what the nodes that timed the candidate found.
void PoolTimes(const Voices& voices, const std::vector<double>& speeds, Candidate* pooled) {
  std::vector<TimeSummary> own;
  std::map<std::pair<LaunchMode, CacheState>, std::vector<TimeSummary>> others;
  std::vector<double> q1, q3, host, clock;
  for (const auto& [node, candidate] : voices.timed) {
    const double speed = speeds[node];
    const auto add = [speed](TimeSummary time, std::vector<TimeSummary>* times) {
      for (double* const us : {&time.median_us, &time.low_us, &time.high_us}) *us /= speed;
      times->push_back(time);
    };
    add({.median_us = candidate->median_us,
         .low_us = candidate->low_us,
         .high_us = candidate->high_us,
         .sample_count = candidate->sample_count},
        &own);
    for (const TimeSummary& time : candidate->other_times) {
      add(time, &others[{time.launch, time.cache_state}]);
    }
    q1.push_back(candidate->q1_us / speed);
    q3.push_back(candidate->q3_us / speed);
    if (candidate->host_us > 0) host.push_back(candidate->host_us);
    if (candidate->sm_clock_mhz > 0) clock.push_back(candidate->sm_clock_mhz);
    if (candidate->error.has_value()) {
      pooled->error = std::max(pooled->error.value_or(0), *candidate->error);
    }
  }
  const TimeSummary time = PoolTime(own);
  pooled->median_us = time.median_us;
  pooled->low_us = time.low_us;
  pooled->high_us = time.high_us;
  pooled->sample_count = time.sample_count;
  pooled->q1_us = std::min(Median(q1), time.median_us);
  pooled->q3_us = std::max(Median(q3), time.median_us);
  pooled->host_us = Median(host);
  pooled->sm_clock_mhz = Median(clock);
  pooled->other_times.clear();
  for (const auto& [kind, times] : others) pooled->other_times.push_back(PoolTime(times));
}

Candidate PoolCandidate(const Voices& voices, const std::vector<double>& speeds) {
  // Whether it runs is what most nodes found; where they are even, it does.
  const size_t others = voices.all.size() - voices.timed.size();
  const bool timed = !voices.timed.empty() && voices.timed.size() >= others;
  const auto like =
      std::find_if(voices.all.begin(), voices.all.end(),
                   [timed](const Candidate* candidate) { return candidate->timed() == timed; });
  Candidate pooled = like != voices.all.end() ? **like : *voices.all.front();
  pooled.samples_ns.clear();
  for (const Candidate* candidate : voices.all) {
    pooled.workspace_bytes = std::max(pooled.workspace_bytes, candidate->workspace_bytes);
    pooled.numerical_notes |= candidate->numerical_notes;
    if (ListPlace(candidate->heuristic_rank) < ListPlace(pooled.heuristic_rank)) {
      pooled.heuristic_rank = candidate->heuristic_rank;
    }
    if (candidate->capture == CaptureSupport::kNo) pooled.capture = CaptureSupport::kNo;
  }
  if (!timed) return pooled;
  PoolTimes(voices, speeds, &pooled);
  return pooled;
}

// The evidence of the best standing, in the cache state that most of it has, and comparable: it has
// a time of the stock choice, if any of it has.
std::vector<const db::fleet::NodeEvidence*> Best(
    const std::vector<db::fleet::NodeEvidence>& evidence) {
  TuningStanding best_standing;
  for (const db::fleet::NodeEvidence& each : evidence) {
    best_standing = std::max(best_standing, StandingOf(each.tuning));
  }
  std::vector<const db::fleet::NodeEvidence*> best;
  std::map<CacheState, int> states;
  for (const db::fleet::NodeEvidence& each : evidence) {
    if (StandingOf(each.tuning) != best_standing) continue;
    best.push_back(&each);
    ++states[each.tuning.cache_state];
  }
  std::erase_if(best, [state = MostCounted(states)](const auto* one) {
    return one->tuning.cache_state != state;
  });
  if (const std::optional<CandidateId> stock = CommonStock(best)) {
    std::erase_if(best, [&](const auto* one) { return !FindTimed(one->tuning, *stock); });
  }
  return best;
}

// True if the two say of one candidate's ratio to the stock choice what differs by more than
// kDeviation and than both intervals.
bool Differ(const Tuning& a, const Tuning& b, const CandidateId& id, const CandidateId& stock) {
  const Candidate* const in_a = FindTimed(a, id);
  const Candidate* const in_b = FindTimed(b, id);
  const Candidate* const stock_a = FindTimed(a, stock);
  const Candidate* const stock_b = FindTimed(b, stock);
  if (!in_a || !in_b || !stock_a || !stock_b) return false;
  const double speed = stock_a->median_us / stock_b->median_us;
  return in_a->low_us > in_b->high_us * speed * (1 + kDeviation) ||
         in_b->low_us * speed > in_a->high_us * (1 + kDeviation);
}

// Returns the pooled candidates, ranked.
std::vector<Candidate> Pool(const std::vector<const db::fleet::NodeEvidence*>& evidence,
                            const std::optional<CandidateId>& stock) {
  std::vector<const Tuning*> tunings;
  for (const db::fleet::NodeEvidence* one : evidence) tunings.push_back(&one->tuning);
  const std::vector<double> speeds = Speeds(tunings, stock);
  std::vector<Candidate> candidates;
  for (const auto& [id, of] : Collect(tunings)) candidates.push_back(PoolCandidate(of, speeds));
  RankCandidates(&candidates);
  return candidates;
}

// Says who of `best` stands behind `pooled`.
void CountVoices(const std::vector<const db::fleet::NodeEvidence*>& best,
                 const std::optional<CandidateId>& stock, db::fleet::PooledTuning* pooled) {
  const std::vector<Candidate>& candidates = pooled->tuning.candidates;
  if (candidates.empty() || !candidates.front().usable()) return;
  // Who dissents must not depend on who is left out, which depends on who dissents.
  Tuning all;
  all.candidates = Pool(best, stock);
  for (const db::fleet::NodeEvidence* one : best) {
    const Tuning& tuning = one->tuning;
    if (!one->deviates && IsBestWithinNoise(tuning, candidates.front().id)) ++pooled->agreeing;
    if (one->relayed) continue;  // nobody's voice
    pooled->voices.push_back(one->node_id);
    if (one->deviates) pooled->left_out.push_back(one->node_id);
    if (stock && (Differ(tuning, all, all.candidates.front().id, *stock) ||
                  Differ(tuning, all, tuning.candidates.front().id, *stock))) {
      pooled->dissenters.push_back(one->node_id);
    }
  }
  // Where each has another winner the median of them is at least what one node would decide.
  if (pooled->left_out.size() < best.size()) {
    pooled->agreeing = std::max<int64_t>(pooled->agreeing, 1);
  }
}

}  // namespace

db::fleet::PooledTuning PoolEvidence(const std::vector<db::fleet::NodeEvidence>& evidence) {
  const std::vector<const db::fleet::NodeEvidence*> best = Best(evidence);
  const bool all_deviate =
      std::all_of(best.begin(), best.end(), [](const auto* one) { return one->deviates; });
  std::vector<const db::fleet::NodeEvidence*> counted = best;
  if (!all_deviate) std::erase_if(counted, [](const auto* one) { return one->deviates; });
  const std::optional<CandidateId> stock = CommonStock(best);
  db::fleet::PooledTuning pooled;
  pooled.tuning = counted.front()->tuning;
  pooled.tuning.provenance = Provenance();
  pooled.tuning.conditions = Conditions();
  pooled.tuning.candidates = Pool(counted, stock);
  for (const db::fleet::NodeEvidence* one : counted) {
    pooled.tuning.rounds = std::max(pooled.tuning.rounds, one->tuning.rounds);
    pooled.tuning.elapsed = std::max(pooled.tuning.elapsed, one->tuning.elapsed);
  }
  CountVoices(best, stock, &pooled);
  pooled.tuning.tune_time = evidence.front().receive_time;
  std::vector<report::GroupTuning> group;
  for (const db::fleet::NodeEvidence& each : evidence) {
    pooled.tuning.tune_time = std::max(pooled.tuning.tune_time, each.receive_time);
    group.push_back({each.provenance_id, &each.tuning});
  }
  pooled.report_rows = report::PackGroup(group, evidence.front().environment);
  return pooled;
}

}  // namespace convtune::fleet
