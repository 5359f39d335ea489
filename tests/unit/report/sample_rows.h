// Rows of reports, typed by hand.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "client/report/report.h"
#include "client/report/report_data.h"
#include "proto/model/problem/conv_problem.h"

namespace convtune::report {

inline std::string SampleProblem(int number) {
  return ConvProblem::Parse("fwd,x=" + std::to_string(1 + number) +
                            "x64x56x56,w=64x64x3x3,pad=1,nhwc,f16")
      .value()
      .ToText();
}

struct SampleRow {
  std::vector<std::pair<std::string, double>> times = {{"graph:eng1", 10}};  // 0: not timed
  int stock = 0;                                                             // index in times
  double spread = 0.002;  // half of the interval, relative
  int day = 100;
  std::string node = "a";
  std::string problem = SampleProblem(0);
  std::string cudnn = "9.19.0";
  std::string driver = "580.65";
  double clock_mhz = 1700;
};

inline void AddSample(ReportData* data, const SampleRow& sample) {
  Environment environment =
      Environment::Parse("nvidia-h200,cc=9.0,sms=132,cudnn=" + sample.cudnn + ",lib=full").value();
  environment.gpu_model = "NVIDIA H200";
  Tuning tuning;
  tuning.key = {sample.problem, environment.ToText()};
  tuning.provenance = {sample.driver, "13.0", "GPU-" + sample.node, sample.node, 0};
  tuning.tune_time = absl::UnixEpoch() + absl::Hours(24 * sample.day);
  tuning.elapsed = absl::Seconds(2);
  int rank = 1;
  for (const auto& [text, us] : sample.times) {
    Candidate candidate;
    candidate.id = ParseCandidateId(text).value();
    const bool is_stock = &text == &sample.times[static_cast<size_t>(sample.stock)].first;
    candidate.heuristic_rank = is_stock ? 0 : rank++;
    candidate.status = us > 0 ? CandidateStatus::kTimed : CandidateStatus::kFinalized;
    candidate.median_us = us;
    candidate.low_us = us * (1 - sample.spread);
    candidate.high_us = us * (1 + sample.spread);
    candidate.sm_clock_mhz = us > 0 ? sample.clock_mhz : 0;
    tuning.candidates.push_back(candidate);
  }
  tuning.evidence = sample.times[0].second > 0 ? Evidence::kMeasured : Evidence::kHeuristic;
  data->Add(tuning, environment);
}

// By environment and problem.
inline std::vector<ReportRow> Rows(const ReportData& data) {
  std::vector<ReportRow> all;
  for (const auto& [key, rows] : data.pairs()) all.insert(all.end(), rows.begin(), rows.end());
  return all;
}

inline ReportOptions SampleOptions() {
  ReportOptions options;
  options.now = absl::UnixEpoch() + absl::Hours(24 * 110);
  return options;
}

}  // namespace convtune::report
