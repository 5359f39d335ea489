// ReportData holds what reports are made of: tunings of any number of nodes, in one
// table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "proto/model/enums.h"
#include "proto/model/environment.h"
#include "proto/model/tuning/tuning.h"

namespace convtune::report {

// Value type.
struct ReportProblem {
  std::string text;  // canonical
  Operation operation = Operation::kFwd;
  DataType data_type = DataType::kF32;
  TensorLayout layout = TensorLayout::kNchw;
  double flops = 0;          // of the direct method
  int64_t tensor_bytes = 0;  // read and written, without workspace
};

// A GPU with the software around it. Value type.
struct ReportPlace {
  std::string node;
  std::string gpu_uuid;
  std::string driver;
  std::string cuda;
  friend auto operator<=>(const ReportPlace&, const ReportPlace&) = default;
};

// The time of a candidate, in microseconds. Value type.
struct ReportTime {
  int candidate = 0;
  float median_us = 0;
  float low_us = 0;
  float high_us = 0;
};

// One tuning of one node. Numbers are places in the lists of ReportData. Value
// type; there may be ten million, so it is kept small.
struct ReportRow {
  int environment = 0;
  int problem = 0;
  int place = 0;
  Evidence evidence = Evidence::kNone;
  int winner = -1;              // candidate; -1: none ran
  int stock = -1;               // what cuDNN's heuristic would have run; -1: not known
  int64_t tune_time_us = 0;     // microseconds since 1970 UTC
  int64_t elapsed_us = 0;       // what the tuning took
  int64_t workspace_bytes = 0;  // of the winner
  float sm_clock_mhz = 0;       // of the winner; 0: not measured
  uint16_t candidate_count = 0;
  std::optional<bool> throttled;  // nullopt: not known
  bool stale = false;             // old, or of a cuDNN that its GPU has left; MakeReport sets it
  // Of timed candidates, the winner's first; empty: nothing was timed.
  absl::InlinedVector<ReportTime, 3> times;

  bool timed() const { return !times.empty(); }
  double winner_us() const { return timed() ? times.front().median_us : 0; }  // 0: not timed
  double stock_us() const;                                                    // 0: not timed
  double elapsed_seconds() const { return static_cast<double>(elapsed_us) / 1e6; }
  // nullptr if it was not timed.
  const ReportTime* TimeOf(int candidate) const;
};

// A problem that programs asked for in vain. Value type.
struct ReportWanted {
  std::string problem = {};
  std::string environment = {};  // name
  int64_t misses = 0;
  int nodes = 1;
  std::string last_error = {};
};

// A ReportFilter selects the rows of a report. An empty text or an absent value selects
// all. Value type.
struct ReportFilter {
  std::string gpu = {};      // part of the GPU model, in any case
  std::string problem = {};  // part of the text form
  std::optional<Operation> operation = {};
  std::optional<DataType> data_type = {};
  std::optional<TensorLayout> layout = {};
};

// Not thread-safe.
class ReportData {
 public:
  // Number of a tuning's times that are kept beside the winner's and the stock choice's.
  static constexpr size_t kKeptTimes = 16;

  explicit ReportData(ReportFilter filter = {}) : filter_(std::move(filter)) {}
  ReportData(ReportData&&) = default;

  // Adds a tuning, whose candidates are ranked, unless the filter leaves it out.
  // A newer row of the same problem, environment and place replaces the older
  // one. `environment` is the key's, with the full GPU model. Tunings
  // whose problem text is not a valid problem are ignored.
  void Add(const Tuning& tuning, const Environment& environment);
  // The same, measured at `place`, whatever the tuning says of it.
  void Add(const Tuning& tuning, const Environment& environment, const ReportPlace& place);

  // The same in parts, for sources that have rows and not tunings. Numbers of
  // environments and problems are -1 where the filter leaves them out.
  int AddEnvironment(const std::string& text, const Environment& environment);
  int AddProblem(const std::string& text);
  int AddPlace(const ReportPlace& place);
  int AddCandidate(const std::string& text);
  // The rows of one pair, for more of them: at most one of each place.
  std::vector<ReportRow>& RowsOf(int environment, int problem) {
    return pairs_[{environment, problem}];
  }

  // Adds the look-ups and hits of one daemon or more, since their starts.
  void AddCounters(int64_t lookups, int64_t hits);
  // Counts of the same problem and environment add up.
  void AddWanted(const ReportWanted& wanted);

  // "profiles" of `convtune upgrade-check --json`, whose problems are known (AddProblem).
  void SetUpgradeChecks(std::string json) { upgrade_checks_ = std::move(json); }

  // Rows by environment and problem.
  using Pairs = std::map<std::pair<int, int>, std::vector<ReportRow>>;
  const Pairs& pairs() const { return pairs_; }
  Pairs& pairs() { return pairs_; }
  const std::vector<ReportProblem>& problems() const { return problems_; }
  const std::vector<Environment>& environments() const { return environments_; }
  const std::vector<ReportPlace>& places() const { return places_; }
  const std::vector<std::string>& candidates() const { return candidates_; }
  const std::string& upgrade_checks() const { return upgrade_checks_; }
  // Of a row, or anything else that is of one environment and problem.
  template <typename Of>
  const Environment& EnvironmentOf(const Of& of) const {
    return environments_[static_cast<size_t>(of.environment)];
  }
  template <typename Of>
  const ReportProblem& ProblemOf(const Of& of) const {
    return problems_[static_cast<size_t>(of.problem)];
  }
  // Most wanted first.
  std::vector<ReportWanted> Wanted() const;
  // Hits of the look-ups of all nodes that were asked; nullopt: there were none.
  std::optional<double> hit_ratio() const;

 private:
  bool MatchesGpu(const std::string& model_or_name) const;

  ReportFilter filter_;
  Pairs pairs_;
  std::vector<ReportProblem> problems_;
  std::vector<Environment> environments_;
  std::vector<ReportPlace> places_;
  std::vector<std::string> candidates_;
  // Numbers by what they stand for.
  std::map<std::string, int> problem_numbers_, environment_numbers_, candidate_numbers_;
  std::map<ReportPlace, int> place_numbers_;
  std::map<std::pair<std::string, std::string>, ReportWanted> wanted_;
  std::string upgrade_checks_ = "[]";
  int64_t lookups_ = 0, hits_ = 0;
};

// "eng62" or "legacy:algo1": a candidate without its knobs, by which shares are counted.
std::string EngineOf(const std::string& candidate);

}  // namespace convtune::report
