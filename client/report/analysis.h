// What the parts of a report have in common. Internal to client/report.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/report/report.h"

namespace convtune {

// Rows by GPU and by problem, and how fast each GPU is. The data outlive it.
struct ReportAnalysis {
  // The numbers of the rows of one environment and problem.
  using Group = std::vector<int>;

  ReportAnalysis(const ReportData& of, const ReportOptions& with);

  const ReportRow& Row(int row) const { return data.rows()[static_cast<size_t>(row)]; }
  int GpuOf(int row) const { return gpu_of_row[static_cast<size_t>(row)]; }
  const Environment& EnvironmentOf(const ReportRow& row) const {
    return data.environments()[static_cast<size_t>(row.environment)];
  }
  // A time of the row as a GPU of its model's middle speed would take it.
  double AtModelSpeed(int row, double us) const {
    return us / gpus[static_cast<size_t>(GpuOf(row))].ratio;
  }
  double WinnerAtModelSpeed(int row) const {
    return AtModelSpeed(row, Row(row).times.front().median_us);
  }

  const ReportData& data;
  const ReportOptions& options;
  std::vector<ReportGpu> gpus;  // by node and UUID, wherever the rows come from
  std::vector<int> gpu_of_row;  // index in gpus
  std::vector<bool> stale_row;
  // Each GPU's newest, timed ones first, then in the order of the GPUs.
  std::vector<Group> groups;
  // By the index of a group: what its GPUs had before, as under an older driver.
  std::map<size_t, Group> older;
};

// What rows of one environment and problem have in common, of itself: whatever
// else there is to report changes nothing here. Candidates; -1: none.
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

// Pairs in the order of the groups, and what nodes disagree on.
void AddPairs(const ReportAnalysis& analysis, Report* report);
void AddUpgrades(const ReportAnalysis& analysis, Report* report);

// Of at least one value; reorders them.
double MedianOf(std::vector<double>* values);
// Half-width, relative to the median, within which the median of these values is
// taken to lie: 3 standard errors by the median absolute deviation, and not less
// than `alone`, a value's own half-width, while they are fewer than 10.
double UncertaintyOf(std::vector<double> values, double alone);
// "9.19.0" before "9.20.0"; texts that are no numbers by their bytes.
bool VersionBefore(const std::string& a, const std::string& b);

}  // namespace convtune
