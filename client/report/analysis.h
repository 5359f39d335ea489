// What the parts of a report have in common. Internal to client/report.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/report/report.h"

namespace convtune {

// Rows by GPU and by problem, and how fast each GPU is. The data outlive it.
struct ReportAnalysis {
  ReportAnalysis(const ReportData& of, const ReportOptions& with);

  const Environment& EnvironmentOf(const ReportRow& row) const {
    return data.environments()[static_cast<size_t>(row.environment)];
  }
  // A time of the row as a GPU of its model's middle speed would take it.
  double AtModelSpeed(int row, double us) const {
    return us / gpus[static_cast<size_t>(gpu_of_row[static_cast<size_t>(row)])].ratio;
  }
  double WinnerAtModelSpeed(int row) const {
    return AtModelSpeed(row, data.rows()[static_cast<size_t>(row)].times.front().median_us);
  }

  const ReportData& data;
  const ReportOptions& options;
  std::vector<ReportGpu> gpus;  // in the order of their first rows
  std::vector<int> gpu_of_row;  // index in gpus
  std::vector<bool> stale_row;
  // Rows of one environment and problem, each GPU's newest, timed ones first.
  std::vector<std::vector<int>> groups;
};

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
