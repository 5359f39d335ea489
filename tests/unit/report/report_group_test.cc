#include "client/report/report_group.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "client/report/report.h"
#include "tests/unit/report/simulated_fleet.h"

namespace convtune::report {
namespace {

struct Both {
  ReportData tunings;
  ReportData bytes;
};

// Node 0, 3, ... of one environment, each with one tuning of each problem.
Both FleetBothWays(const FleetOptions& fleet_options, std::string* bytes_of_first = nullptr) {
  const SimulatedFleet fleet(fleet_options);
  Both both;
  std::map<SimulatedFleet::Finding, std::vector<std::pair<int, Tuning>>> groups;
  std::map<std::string, Environment> environments;
  std::vector<int> places;
  for (int node = 0; node < fleet.nodes(); ++node) {
    for (auto& [tuning, environment] : fleet.TuningsOf(node)) {
      both.tunings.Add(tuning, environment);
      const Provenance& from = tuning.provenance;
      places.resize(static_cast<size_t>(node) + 1, -1);
      places.back() =
          both.bytes.AddPlace({from.node, from.gpu_uuid, from.driver_version, from.CudaText()});
      environments.emplace(tuning.key.environment_text, environment);
      groups[{tuning.key.environment_text, tuning.key.problem_text}].emplace_back(node, tuning);
    }
  }
  for (const auto& [key, tunings] : groups) {
    std::vector<GroupTuning> group;
    for (const auto& [node, tuning] : tunings) group.push_back({node, &tuning});
    const Environment& environment = environments.at(key.first);
    const std::string bytes = PackGroup(group, environment);
    if (bytes_of_first != nullptr && bytes_of_first->empty()) *bytes_of_first = bytes;
    const absl::Status added = AddGroup(bytes, both.bytes.AddEnvironment(key.first, environment),
                                        both.bytes.AddProblem(key.second), places, &both.bytes);
    EXPECT_TRUE(added.ok()) << added;
  }
  return both;
}

std::string Line(const std::vector<std::string>& fields) {
  std::string line;
  for (const std::string& field : fields) line += field + " ";
  return line;
}

// What does not depend on the order in which the rows came.
std::multiset<std::string> Findings(const ReportData& data, const Report& report) {
  const auto key = [&](int environment, int problem) {
    return data.environments()[static_cast<size_t>(environment)].ToText() + " " +
           data.problems()[static_cast<size_t>(problem)].text;
  };
  const auto candidate = [&](int c) {
    return c < 0 ? "-" : data.candidates()[static_cast<size_t>(c)];
  };
  std::multiset<std::string> all;
  for (const ReportPair& p : report.pairs) {
    all.insert(Line({"pair", key(p.environment, p.problem), candidate(p.winner), candidate(p.stock),
                     std::to_string(p.nodes), std::to_string(p.timed_nodes),
                     std::to_string(p.winner_us), std::to_string(p.stock_us),
                     std::to_string(p.search_seconds), std::to_string(p.stale_nodes),
                     std::to_string(p.disagreeing_nodes), std::to_string(p.disagreement_us)}));
  }
  for (const ReportUpgrade& u : report.upgrades) {
    for (const auto& p : u.points) {
      all.insert(Line({"upgrade", u.subject, u.from, u.to, key(p.environment, p.problem),
                       std::to_string(p.from_us), std::to_string(p.to_us), candidate(p.from_winner),
                       candidate(p.to_winner), std::to_string(p.beyond_noise)}));
    }
  }
  for (const ReportGpu& g : report.gpus) {
    all.insert(Line({"gpu", g.node, g.gpu_uuid, std::to_string(g.compared), std::to_string(g.ratio),
                     std::to_string(g.clock_mhz), std::to_string(g.throttled.value_or(-1)),
                     std::to_string(g.slow)}));
  }
  for (const ReportDisagreement& d : report.disagreements) {
    for (const auto& other : d.others) {
      all.insert(Line({"disagreement", key(d.environment, d.problem), candidate(d.winner),
                       candidate(other.candidate), std::to_string(other.places.size()),
                       std::to_string(other.cost_us), std::to_string(other.cost_ratio)}));
    }
  }
  return all;
}

TEST(ReportGroup, HasTheNumbersOfTheTuningsThatAreInIt) {
  for (const bool timed : {true, false}) {
    Both both = FleetBothWays(
        {.seed = 3, .nodes = 60, .problems = 450, .problems_per_node = 200, .timed = timed});
    ReportOptions options;
    options.now = SimulatedFleet::Now();
    const Report whole = MakeReport(options, &both.tunings);
    const Report packed = MakeReport(options, &both.bytes);
    EXPECT_EQ(Findings(both.bytes, packed), Findings(both.tunings, whole));
    EXPECT_EQ(packed.headline.rows, whole.headline.rows);
    EXPECT_EQ(packed.headline.stale, whole.headline.stale);
    EXPECT_EQ(packed.headline.gain.has_value(), timed);
    if (!timed) continue;
    EXPECT_NEAR(*packed.headline.gain, *whole.headline.gain, 1e-12);
    EXPECT_NEAR(packed.headline.search_seconds, whole.headline.search_seconds, 1e-6);
    EXPECT_GT(whole.headline.disagreements, 0);
    EXPECT_GT(whole.headline.regressions, 0);
    EXPECT_GT(whole.headline.slow_gpus, 0);
  }
}

TEST(ReportGroup, WhatItDidNotMakeIsRefused) {
  std::string bytes;
  FleetBothWays({.nodes = 6, .problems = 3, .problems_per_node = 3}, &bytes);
  ASSERT_GT(bytes.size(), 50U);
  const auto status = [](const std::string& damaged, std::vector<int> places) {
    ReportData data;
    return AddGroup(damaged, 0, 0, places, &data).code();
  };
  const std::vector<int> known(8, 0);
  EXPECT_EQ(status(bytes, known), absl::StatusCode::kOk);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(status(bytes.substr(0, size), known), absl::StatusCode::kDataLoss) << size;
  }
  EXPECT_EQ(status(bytes + "x", known), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status("\x02" + bytes.substr(1), known), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status(bytes, {}), absl::StatusCode::kDataLoss) << "no place is known";
  EXPECT_EQ(status(bytes, std::vector<int>(8, -1)), absl::StatusCode::kDataLoss);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string flipped = bytes;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x80);
    status(flipped, known);  // whatever it says, it comes back
  }
}

}  // namespace
}  // namespace convtune::report
