// The parts of a report share these functions. Internal to client/report.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "client/report/parallel.h"
#include "client/report/report.h"

namespace convtune::report {

// Rows by GPU and by problem, and how fast each GPU is. The data outlive it.
// Ten million rows are looked at twice, in the order in which they lie, on all
// cores: here, and by what makes the report of it.
class ReportAnalysis {
 public:
  // The numbers of rows of one environment and problem.
  using Group = std::span<const int>;

  ReportAnalysis(const ReportData& of, const ReportOptions& with);
  ReportAnalysis(const ReportAnalysis&) = delete;
  ReportAnalysis& operator=(const ReportAnalysis&) = delete;

  const ReportRow& Row(int row) const { return data.rows()[static_cast<size_t>(row)]; }
  int GpuOf(const ReportRow& row) const {
    return gpu_of_place_[static_cast<size_t>(row.place)] +
           hardware_of_environment_[static_cast<size_t>(row.environment)];
  }
  int GpuOf(int row) const { return GpuOf(Row(row)); }
  bool HasRows(size_t gpu) const { return rows_of_gpu_[gpu] > 0; }
  // A profile, or a GPU made of software.
  bool IsNoCard(size_t gpu) const { return no_cards_[gpu % no_cards_.size()]; }
  // A time of the row as a GPU of its model's middle speed would take it.
  double AtModelSpeed(const ReportRow& row, double us) const {
    return us / ratios_[static_cast<size_t>(GpuOf(row))];
  }
  double WinnerAtModelSpeed(int row) const {
    return AtModelSpeed(Row(row), Row(row).times.front().median_us);
  }
  // Old, or of a cuDNN that its GPU has left.
  bool IsStale(const ReportRow& row) const {
    return row.tune_time_us < oldest_us_ || versions_[static_cast<size_t>(row.environment)] <
                                                newest_[static_cast<size_t>(GpuOf(row))];
  }
  // Whether a row of that environment, measured there, was timed.
  bool HasTimed(size_t place, size_t environment) const {
    return timed_at_[place * data.environments().size() + environment] != 0;
  }

  const ReportData& data;
  const ReportOptions& options;
  const size_t workers;
  // By node and UUID, wherever the rows come from; HasRows says which there are.
  std::vector<ReportGpu> gpus;
  // Each GPU's newest, timed ones first, then in the order of the GPUs.
  std::vector<Group> groups;
  std::vector<size_t> timed_counts;  // of each group
  // By the index of a group: what its GPUs had before, as under an older driver.
  std::map<size_t, std::vector<int>> older;

 private:
  struct Sums;
  void NumberGpus();
  void GroupRows();
  // Orders the group and adds what its rows say of their GPUs.
  void ReadGroup(size_t group, Sums* sums);
  void RateGpus(std::vector<Sums>* sums);

  // The numbers of GPUs are places' and environments' together.
  std::vector<int> gpu_of_place_;
  std::vector<int> hardware_of_environment_;
  std::vector<bool> no_cards_;  // by hardware
  std::vector<int> versions_;   // of environments' cuDNN, in their order
  std::vector<int> newest_;     // of each GPU
  std::vector<int> rows_of_gpu_;
  std::vector<double> ratios_;  // of each GPU
  std::vector<char> timed_at_;  // by place and environment
  int64_t oldest_us_;
  std::vector<int> order_;  // the groups' rows
};

// The choice that the rows of one environment and problem have in common. It depends
// on these rows alone. The members are candidates; -1: none.
struct CommonChoice {
  int settled = -1;  // the most frequent winner
  int winner = -1;   // the settled one, unless another is clearly better
  int stock = -1;    // the most frequent stock choice
};
// Rows in the order of a group. `texts` are the candidates', which decide ties.
CommonChoice ChooseCommon(const std::vector<const ReportRow*>& rows,
                          const std::vector<std::string>& texts, double least_change);
// The most frequent of them (but -1), of equals the first by text; -1 if there is none.
int MostFrequent(const std::vector<int>& candidates, const std::vector<std::string>& texts);

// Of all rows.
struct RowCounts {
  std::array<int64_t, 64> by_evidence{};  // by its number
  int64_t stale = 0;
  double search_seconds = 0;
};
// Pairs in the order of the groups, what nodes disagree on, which rows are stale.
RowCounts AddPairs(const ReportAnalysis& analysis, Report* report);
void AddUpgrades(const ReportAnalysis& analysis, Report* report);

// Of at least one value, none of them NaN; reorders them.
double MedianOf(std::vector<double>* values);
double MedianOf(std::vector<float>* values);
// Half-width, relative to their median, within which the median of these values is
// taken to lie: 3 standard errors by the median absolute deviation, and not less
// than `alone`, a value's own half-width, while they are fewer than 10.
double UncertaintyOf(std::vector<double> values, double median, double alone);
// "9.19.0" before "9.20.0"; texts that are no numbers by their bytes.
bool VersionBefore(const std::string& a, const std::string& b);

}  // namespace convtune::report
