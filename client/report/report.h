// A Report holds all numbers of a report, computed from rows alone, and is written as a document
// for programs or as a page; README.md says how each number is made, and describes the document.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/report/report_data.h"

namespace convtune::report {

struct ReportOptions {
  absl::Time now;
  absl::Duration stale_after = absl::Hours(24 * 180);
};

// A GPU is slow from this median ratio to its model's on.
inline constexpr double kSlowRatio = 1.05;
// A difference below this is never more than noise.
inline constexpr double kLeastChange = 0.02;

// Times are medians over nodes, each divided by its GPU's speed, in
// microseconds; 0: nothing was timed.
struct ReportPair {
  int environment = 0;
  int problem = 0;
  int nodes = 0;                        // rows
  int timed_nodes = 0;                  // of them, timed
  Evidence evidence = Evidence::kNone;  // the best
  int winner = -1;                      // of all nodes together
  int stock = -1;
  double winner_us = 0;
  double stock_us = 0;
  double search_seconds = 0;   // what the nodes spent on it
  int stale_nodes = 0;         // rows that are old or of a cuDNN that their GPU has left
  int disagreeing_nodes = 0;   // beyond noise
  double disagreement_us = 0;  // what the common winner costs these nodes, summed
};

struct ReportShare {
  std::string gpu_model;
  DataType data_type = DataType::kF32;
  TensorLayout layout = TensorLayout::kNchw;
  Operation operation = Operation::kFwd;
  int pairs = 0;
  std::vector<std::pair<std::string, int>> engines;  // with their pairs, most first
};

// A problem of one environment on whose winner nodes differ beyond noise.
struct ReportDisagreement {
  int environment = 0;
  int problem = 0;
  int nodes = 0;
  int winner = -1;  // the common one
  struct Other {
    int candidate = -1;
    std::vector<int> places;
    double cost_us = 0;     // what the common winner takes more there, summed
    double cost_ratio = 1;  // the worst of them
  };
  std::vector<Other> others;  // the dearest first
  double cost_us = 0;
};

// From one cuDNN, or one driver, to the next one of the same GPU model.
struct ReportUpgrade {
  enum class Kind { kCudnn, kDriver };
  Kind kind = Kind::kCudnn;
  std::string subject;  // environment text but for what changes
  std::string from, to;
  struct Point {
    int problem = 0;
    int environment = 0;  // after it
    double from_us = 0;
    double to_us = 0;
    int from_winner = -1;
    int to_winner = -1;
    bool beyond_noise = false;
  };
  std::vector<Point> points;  // problems that both have timed; most time lost first
  int regressions = 0;        // slower beyond noise
  int improvements = 0;
  double ratio = 1;  // geometric mean of to/from
};

// A GPU against the others of its model.
struct ReportGpu {
  std::string node, gpu_uuid, gpu_model;
  int compared = 0;                 // problems that at least 3 GPUs of the model have timed
  double ratio = 1;                 // median of its time to the model's; above 1 is slower
  double clock_mhz = 0;             // median; 0: not measured
  double model_clock_mhz = 0;       // median of the GPUs of the model
  std::optional<double> throttled;  // share of its tunings; nullopt: not known
  bool slow = false;
};

// The best that was attained, which stands in for the roof.
struct ReportRoof {
  std::string gpu_model;
  DataType data_type = DataType::kF32;
  double tflops = 0;
  double gbytes_per_second = 0;
  int pairs = 0;
};

struct ReportHeadline {
  int64_t rows = 0, measured = 0, incomplete = 0, observed = 0, heuristic = 0, failed = 0;
  int nodes = 0, gpus = 0, environments = 0, problems = 0;
  int64_t pairs = 0, timed_pairs = 0;
  int64_t wanted_pairs = 0;             // asked for in vain, and without a row
  std::optional<double> coverage;       // timed of (pairs + wanted_pairs)
  std::optional<double> hit_ratio;      // of all look-ups since the daemons' starts
  int64_t compared_pairs = 0;           // with winner and stock timed
  std::optional<double> gain;           // geometric mean of stock / winner
  std::optional<double> stock_is_best;  // share of compared_pairs
  double search_seconds = 0;            // what the nodes spent on all tunings
  std::optional<double> stale;          // share of rows
  int disagreements = 0, slow_gpus = 0, regressions = 0;
};

struct Report {
  ReportOptions options;
  ReportHeadline headline;
  std::vector<ReportPair> pairs;  // by environment and problem
  std::vector<ReportShare> shares;
  std::vector<ReportDisagreement> disagreements;  // the dearest first
  std::vector<ReportUpgrade> upgrades;
  std::vector<ReportGpu> gpus;  // the slowest first
  std::vector<ReportRoof> roofs;
  std::vector<ReportWanted> wanted;  // most wanted first
};

// Makes the report of the rows. Sets `stale` of each row, and orders the rows within each pair.
Report MakeReport(const ReportOptions& options, ReportData* data);

// One line. In strings "<" is written as an escape, so that the document may
// stand in a page.
std::string ReportJson(const ReportData& data, const Report& report);
// HTML with its style, its program and its data (ReportJson) inline: it loads
// nothing, from nowhere.
std::string ReportHtml(const ReportData& data, const Report& report);

}  // namespace convtune::report
