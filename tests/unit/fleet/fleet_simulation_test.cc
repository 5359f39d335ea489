// Simulated fleets, each with a liar, a slow GPU and a GPU whose clock is broken: what
// they decide together, and what one node would decide. A node has about thirty of the problems:
// until five tell that it deviates, two bad nodes can agree by chance.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "client/fleet/pooling.h"
#include "proto/model/tuning/ranking.h"

namespace convtune::fleet {
namespace {

constexpr int kProblems = 128;
constexpr int kCandidates = 8;
constexpr int kPasses = 5;        // as PoolEverything
constexpr double kNoise = 0.005;  // of a median; its interval is twice as wide to each side

enum class Kind { kHonest, kLiar, kSlow, kBrokenClock, kSlowStock };

// CONVTUNE_TEST_SIMULATED_FLEETS says how many.
int Fleets() {
  const char* text = std::getenv("CONVTUNE_TEST_SIMULATED_FLEETS");
  return text == nullptr ? 30 : std::atoi(text);
}

using Times = std::vector<double>;

// The candidates in the order of cuDNN's list: the first is the stock choice.
Tuning MakeTuning(const Times& times, double noise) {
  Tuning tuning;
  tuning.evidence = Evidence::kMeasured;
  for (size_t i = 0; i < times.size(); ++i) {
    Candidate candidate;
    candidate.id = EngineConfig{static_cast<int64_t>(i), {}};
    candidate.status = CandidateStatus::kTimed;
    candidate.heuristic_rank = static_cast<int>(i);
    candidate.median_us = times[i];
    candidate.q1_us = candidate.low_us = times[i] * (1 - 2 * noise);
    candidate.q3_us = candidate.high_us = times[i] * (1 + 2 * noise);
    candidate.sample_count = 20;
    tuning.candidates.push_back(std::move(candidate));
  }
  RankCandidates(&tuning.candidates);
  return tuning;
}

class SimulatedFleet {
 public:
  // With five to nine honest nodes beside the others.
  explicit SimulatedFleet(uint64_t seed)
      : SimulatedFleet(seed, 5 + seed % 5, {Kind::kLiar, Kind::kSlow, Kind::kBrokenClock}) {}
  SimulatedFleet(uint64_t seed, size_t honest, const std::vector<Kind>& others)
      : random_(seed), kinds_(honest, Kind::kHonest) {
    kinds_.insert(kinds_.end(), others.begin(), others.end());
    for (int p = 0; p < kProblems; ++p) {
      Times times;
      const double stock = 20 + Draw(1) * Draw(1);
      for (int c = 0; c < kCandidates; ++c) times.push_back(stock * (c == 0 ? 1 : Factor(0.25)));
      problems_.push_back(times);
    }
  }

  size_t nodes() const { return kinds_.size(); }
  Kind kind(size_t node) const { return kinds_[node]; }

  db::fleet::NodeEvidence Measure(size_t node, size_t problem) {
    const Kind kind = kinds_[node];
    const double noise = kind == Kind::kSlow ? 2 * kNoise : kNoise;
    Times times = problems_[problem];
    for (double& time : times) {
      time *= Factor(noise);
      if (kind == Kind::kSlow) time *= 2.5;
      if (kind == Kind::kBrokenClock) time *= Factor(0.4);
    }
    if (kind == Kind::kSlowStock) times[0] *= 1.6;
    if (kind == Kind::kLiar) times[random_() % kCandidates] *= 0.3;
    db::fleet::NodeEvidence evidence;
    evidence.node_id = static_cast<int64_t>(node);
    evidence.tuning = MakeTuning(times, noise);
    return evidence;
  }

  bool IsWrong(size_t problem, const Tuning& decided) const {
    // The noise of the slow GPU: one that it and another measured is known no better.
    return !IsBestWithinNoise(MakeTuning(problems_[problem], 2 * kNoise),
                              decided.candidates.front().id);
  }

  // The nodes in the order in which they would take the problem.
  std::vector<size_t> Draw() {
    std::vector<size_t> order;
    for (size_t node = 0; node < nodes(); ++node) order.push_back(node);
    std::shuffle(order.begin(), order.end(), random_);
    return order;
  }

 private:
  double Draw(double deviation) { return std::normal_distribution(0.0, deviation)(random_); }
  double Factor(double deviation) { return std::exp(Draw(deviation)); }

  std::mt19937_64 random_;
  std::vector<Kind> kinds_;
  std::vector<Times> problems_;
};

struct Outcome {
  int decided = 0;
  int wrong = 0;
  int held = 0;
  std::map<Kind, int> left_out;  // nodes
};

// Pools until it is settled who deviates, as PoolEverything does with the database, and counts what
// a promotion would serve. Returns the problems that are held back.
std::vector<size_t> Decide(const SimulatedFleet& fleet,
                           std::vector<std::vector<db::fleet::NodeEvidence>> evidence,
                           Outcome* outcome) {
  std::set<int64_t> deviating;
  std::vector<db::fleet::PooledTuning> pooled;
  bool settled = false;
  for (int pass = 0; !settled && pass < kPasses; ++pass) {
    std::map<int64_t, std::pair<int64_t, int64_t>> dissents;  // and shared
    pooled.clear();
    for (auto& of_problem : evidence) {
      for (auto& one : of_problem) one.deviates = deviating.count(one.node_id) > 0;
      pooled.push_back(PoolEvidence(of_problem));
      const db::fleet::PooledTuning& last = pooled.back();
      if (last.voices.size() < last.dissenters.size() + 2) continue;  // as ListDeviating
      for (const int64_t node : last.voices) ++dissents[node].second;
      for (const int64_t node : last.dissenters) ++dissents[node].first;
    }
    std::set<int64_t> now;
    for (const auto& [node, counts] : dissents) {
      if (db::fleet::Deviates(counts.first, counts.second)) now.insert(node);
    }
    settled = now == std::exchange(deviating, now);
  }
  EXPECT_TRUE(settled) << "another node deviates with each pass";
  for (const int64_t node : deviating) ++outcome->left_out[fleet.kind(static_cast<size_t>(node))];
  std::vector<size_t> held;
  for (size_t problem = 0; problem < pooled.size(); ++problem) {
    if (pooled[problem].agreeing < 2) {
      ++outcome->held;
      held.push_back(problem);
      continue;
    }
    ++outcome->decided;
    outcome->wrong += fleet.IsWrong(problem, pooled[problem].tuning) ? 1 : 0;
  }
  return held;
}

void Print(const char* rule, Outcome outcome) {
  std::printf(
      "%s: %d of %d choices are wrong, %d are held back; left out: %d liars, %d broken "
      "clocks, %d slow GPUs, %d honest nodes\n",
      rule, outcome.wrong, outcome.decided, outcome.held, outcome.left_out[Kind::kLiar],
      outcome.left_out[Kind::kBrokenClock], outcome.left_out[Kind::kSlow],
      outcome.left_out[Kind::kHonest]);
}

// Two agree on the winner and not on its ratio, so no third is asked, and leaving one out must not
// change what the other says of it.
TEST(FleetSimulation, WhoDeviatesIsSettledWhereTwoMeasuredMost) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    SimulatedFleet fleet(seed, 3, {Kind::kSlowStock});
    std::vector<std::vector<db::fleet::NodeEvidence>> evidence;
    for (size_t problem = 0; problem < kProblems; ++problem) {
      std::vector<db::fleet::NodeEvidence> asked;
      for (const size_t node : fleet.Draw()) asked.push_back(fleet.Measure(node, problem));
      asked.resize(Disagree(asked[0].tuning, asked[1].tuning) ? 3 : 2);
      evidence.push_back(std::move(asked));
    }
    Outcome outcome;
    Decide(fleet, std::move(evidence), &outcome);
    EXPECT_EQ(outcome.left_out.count(Kind::kHonest), 0);
  }
}

TEST(FleetSimulation, ALiarASlowGpuAndABrokenClockDecideNothing) {
  Outcome one_node, queued, everybody;
  for (int n = 0; n < Fleets(); ++n) {
    SimulatedFleet fleet(1000 + static_cast<uint64_t>(n));
    const bool ask_all = n % 10 == 0;
    std::vector<std::vector<size_t>> orders;
    std::vector<std::vector<db::fleet::NodeEvidence>> by_queue, by_all;
    for (size_t problem = 0; problem < kProblems; ++problem) {
      const std::vector<size_t> order = fleet.Draw();
      std::vector<db::fleet::NodeEvidence> asked;
      for (const size_t node : order) {
        asked.push_back(fleet.Measure(node, problem));
        if (asked.size() >= 3 && !ask_all) break;
      }
      ++one_node.decided;
      one_node.wrong += fleet.IsWrong(problem, asked[0].tuning) ? 1 : 0;
      if (ask_all) by_all.push_back(asked);
      // As CompleteTask: a third where two disagree.
      asked.resize(Disagree(asked[0].tuning, asked[1].tuning) ? 3 : 2);
      by_queue.push_back(std::move(asked));
      orders.push_back(order);
    }
    // What is held back is queued once more: another node measures it.
    Outcome first;
    for (const size_t problem : Decide(fleet, by_queue, &first)) {
      const size_t node = orders[problem][by_queue[problem].size()];
      by_queue[problem].push_back(fleet.Measure(node, problem));
    }
    Decide(fleet, std::move(by_queue), &queued);
    if (ask_all) Decide(fleet, std::move(by_all), &everybody);
  }
  Print("one node decides", one_node);
  Print("two or three nodes, by the queue", queued);
  Print("all nodes of every tenth fleet", everybody);
  EXPECT_GT(one_node.wrong, Fleets()) << "the simulation shows nothing";
  for (const Outcome& outcome : {queued, everybody}) {
    EXPECT_EQ(outcome.wrong, 0);
    EXPECT_EQ(outcome.left_out.count(Kind::kHonest) + outcome.left_out.count(Kind::kSlow), 0);
    EXPECT_GT(outcome.decided, 9 * outcome.held);
  }
}

}  // namespace
}  // namespace convtune::fleet
