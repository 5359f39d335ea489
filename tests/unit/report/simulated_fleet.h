// A fleet that is made up, with facts in it that a report has to find.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/model/environment.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/tuning.h"

namespace convtune::report {

struct FleetOptions {
  uint64_t seed = 1;
  int nodes = 1000;
  int problems = 10'000;
  int problems_per_node = 150;  // in each environment that the node has had
  bool timed = true;            // false: heuristics alone, as without a GPU
};

// Every number comes from the seed, by arithmetic that is the same everywhere.
// Nodes are spread over three GPU models. Each model has two environments, cuDNN
// 9.18 and 9.19; a tenth of its nodes has tunings of both. Half of the nodes have
// a newer driver. GPUs differ by up to 1%, measurements by up to 0.5% of noise.
//
// Planted, each in one of 400 problems: nodes of one model that have another
// winner, by a fifth; cuDNN 9.19 slower by 15 to 60%; the newer driver slower by
// 12 to 40%. One node of 80 is slower by 12% with lower clocks; one of 50 has old
// tunings. Of every second problem the stock choice takes 1.3 times the winner's.
class SimulatedFleet {
 public:
  using Finding = std::pair<std::string, std::string>;  // environment text, problem text

  explicit SimulatedFleet(FleetOptions options);

  int nodes() const { return options_.nodes; }
  // When the newest tuning was made.
  static absl::Time Now() { return absl::FromUnixSeconds(1'780'000'000); }
  static bool IsSlow(int node) { return node % 80 == 11; }
  static bool IsOld(int node) { return node % 50 == 20; }
  static bool HasBoth(int node) { return node / 3 % 10 == 0; }
  static bool IsStockBest(int problem) { return problem % 2 == 1; }
  static std::string NodeName(int node);

  // What a report has to find: problems of which enough was measured.
  std::set<Finding> Disagreements() const;
  std::set<Finding> CudnnRegressions() const;  // by the environment after it
  std::set<Finding> DriverRegressions() const;

  // The node's tunings, ordered by (environment text, problem text).
  std::vector<std::pair<Tuning, Environment>> TuningsOf(int node) const;

  // The same in parts, by places in these lists.
  const std::vector<Environment>& environments() const { return environments_; }
  const std::vector<ConvProblem>& problems() const { return problems_; }
  std::vector<int> EnvironmentsOf(int node) const;
  std::vector<int> ProblemsOf(int node) const;  // by text
  Tuning Make(int node, int environment, int problem) const;

 private:
  static bool Disagrees(int problem) { return problem % 400 == 7; }
  static bool SlowerCudnn(int problem) { return problem % 400 == 107; }
  static bool SlowerDriver(int problem) { return problem % 400 == 207; }
  static bool NewDriver(int node) { return node / 3 % 2 == 1; }
  bool IsVariant(int node) const { return Draw(7, static_cast<uint64_t>(node), 0, 0) < 0.33; }
  // The problems with this effect that nodes of both sides have measured in one environment.
  std::set<Finding> MeasuredByBoth(bool (*planted)(int problem),
                                   const std::function<bool(int node)>& side) const;
  // Uniform in [0, 1), of these numbers alone.
  double Draw(uint64_t a, uint64_t b, uint64_t c, uint64_t d) const;

  const FleetOptions options_;
  std::vector<Environment> environments_;  // of each model the older cuDNN, then the newer
  std::vector<ConvProblem> problems_;
  std::vector<std::string> texts_;
};

}  // namespace convtune::report
