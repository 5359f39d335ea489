// ReportAnalysis has what the parts of a report share: rows by pair and by GPU, and how
// fast each GPU is. Internal to client/report.
#pragma once

#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "client/report/report.h"

namespace convtune::report {

// Orders the rows of the data within each pair. The data outlive it, and nobody else changes them
// meanwhile.
class ReportAnalysis {
 public:
  using Rows = std::span<ReportRow>;
  // The rows of one environment and problem.
  struct Pair {
    int environment = 0;
    int problem = 0;
    Rows newest;  // of each GPU: timed ones first, then in the order of the GPUs
    Rows timed;   // those of them that were timed
    Rows older;   // what the GPUs had before, as under an older driver
  };

  ReportAnalysis(const ReportOptions& options, ReportData* data);
  ReportAnalysis(const ReportAnalysis&) = delete;
  ReportAnalysis& operator=(const ReportAnalysis&) = delete;

  int GpuOf(const ReportRow& row) const { return cells_[Index(row.place, row.environment)].gpu; }
  // A time of the row as a GPU of its model's middle speed would take it.
  double AtModelSpeed(const ReportRow& row, double us) const {
    return us / gpus[static_cast<size_t>(GpuOf(row))].ratio;
  }
  // Old, or of a cuDNN that its GPU has left.
  bool IsStale(const ReportRow& row) const {
    return row.tune_time_us < oldest_us_ || cells_[Index(row.place, row.environment)].left;
  }
  // True if any row that was measured at that place in that environment was timed.
  bool HasTimed(int place, int environment) const {
    return cells_[Index(place, environment)].timed;
  }
  // nullptr: no node has such a row.
  const Pair* Find(int environment, int problem) const;

  const ReportData& data;
  std::vector<Pair> pairs;      // by environment and problem
  std::vector<ReportGpu> gpus;  // by node and UUID
  int cards = 0;                // GPUs that are neither profiles nor made of software

 private:
  // The rows of one environment that were measured at one place.
  struct Cell {
    bool seen = false;
    bool timed = false;
    bool left = false;  // the GPU has a newer cuDNN
    int gpu = -1;
  };
  // What the rows of one GPU say of it.
  struct Sums {
    std::vector<double> ratios, clocks;
    int known = 0;  // rows that say whether the GPU was throttled
    int throttled = 0;
  };

  size_t Index(int place, int environment) const {
    return static_cast<size_t>(place) * data.environments().size() +
           static_cast<size_t>(environment);
  }
  void NumberGpus();
  Pair Order(Rows rows);
  void RateGpus(std::vector<Sums> sums);

  std::vector<Cell> cells_;
  int64_t oldest_us_;
};

// The choice that the rows of one environment and problem have in common. It depends
// on these rows alone. The members are candidates; -1: none.
struct CommonChoice {
  int settled = -1;  // the most frequent winner
  int winner = -1;   // the settled one, unless another is clearly better
  int stock = -1;    // the most frequent stock choice
};
// `texts` are the candidates', which decide ties.
CommonChoice ChooseCommon(std::span<const ReportRow> rows, const std::vector<std::string>& texts);
// The candidate (but -1) with the highest count, of equals the first by text; -1: none.
int MostFrequent(const std::map<int, int>& counts, const std::vector<std::string>& texts);

void AddUpgrades(const ReportAnalysis& analysis, Report* report);

// Half-width, relative to their median, within which the median of these values is
// taken to lie: 3 standard errors by the median absolute deviation, and not less
// than `alone`, a value's own half-width, while they are fewer than 10.
double UncertaintyOf(std::vector<double> values, double median, double alone);

}  // namespace convtune::report
