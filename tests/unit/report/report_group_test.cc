#include "client/report/report_group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "client/report/report.h"
#include "tests/unit/report/simulated_fleet.h"

namespace convtune::report {
namespace {

struct Both {
  ReportData tunings;
  ReportData bytes;
};

// A fleet's tunings, as they are and in groups.
Both FleetBothWays(const FleetOptions& fleet_options, std::string* bytes_of_first = nullptr) {
  const SimulatedFleet fleet(fleet_options);
  std::map<SimulatedFleet::Finding, std::vector<std::pair<int, Tuning>>> groups;
  std::map<std::string, Environment> environments;
  for (int node = 0; node < fleet.nodes(); ++node) {
    for (const auto& [tuning, environment] : fleet.TuningsOf(node)) {
      environments.emplace(tuning.key.environment_text, environment);
      groups[{tuning.key.environment_text, tuning.key.problem_text}].emplace_back(node, tuning);
    }
  }
  Both both;
  std::vector<int> places(static_cast<size_t>(fleet.nodes()), -1);
  for (const auto& [key, tunings] : groups) {
    const Environment& environment = environments.at(key.first);
    std::vector<GroupTuning> group;
    for (const auto& [node, tuning] : tunings) {
      both.tunings.Add(tuning, environment);
      const Provenance& from = tuning.provenance;
      places[static_cast<size_t>(node)] =
          both.bytes.AddPlace({from.node, from.gpu_uuid, from.driver_version, from.CudaText()});
      group.push_back({node, &tuning});
    }
    const std::string bytes = PackGroup(group, environment);
    if (bytes_of_first != nullptr && bytes_of_first->empty()) *bytes_of_first = bytes;
    const absl::Status added = AddGroup(bytes, both.bytes.AddEnvironment(key.first, environment),
                                        both.bytes.AddProblem(key.second), places, &both.bytes);
    EXPECT_TRUE(added.ok()) << added;
  }
  return both;
}

TEST(ReportGroup, HasTheNumbersOfTheTuningsThatAreInIt) {
  for (const bool timed : {true, false}) {
    Both both = FleetBothWays(
        {.seed = 3, .nodes = 60, .problems = 450, .problems_per_node = 200, .timed = timed});
    ReportOptions options;
    options.now = SimulatedFleet::Now();
    const Report whole = MakeReport(options, &both.tunings);
    const Report packed = MakeReport(options, &both.bytes);
    const std::string json = ReportJson(both.bytes, packed);
    const std::string expected = ReportJson(both.tunings, whole);
    const auto same = std::mismatch(json.begin(), json.end(), expected.begin(), expected.end());
    const auto begin = static_cast<size_t>(same.first - json.begin());
    EXPECT_EQ(json.substr(begin, 300), expected.substr(begin, 300)) << "at byte " << begin;
    EXPECT_EQ(packed.headline.gain.has_value(), timed);
    if (!timed) continue;
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
