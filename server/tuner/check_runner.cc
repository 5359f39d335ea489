#include "server/tuner/check_runner.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/tuner/listing.h"
#include "server/tuner/ranking.h"

namespace convtune {
namespace {

CaptureSupport ReadCapture(int number) {
  switch (number) {
    case static_cast<int>(CaptureSupport::kYes):
      return CaptureSupport::kYes;
    case static_cast<int>(CaptureSupport::kNo):
      return CaptureSupport::kNo;
    default:
      return CaptureSupport::kUnknown;
  }
}

// To two digits, upwards: candidates that differ by less are alike, and the
// index need not hold them all.
double Coarse(double error) {
  if (error <= 0) return 0;
  const double unit = std::pow(10.0, std::floor(std::log10(error)) - 1);
  return std::ceil(error / unit - 1e-6) * unit;
}

}  // namespace

CheckRunner::CheckRunner(const ConvProblem& problem, std::map<int, Candidate>* candidates,
                         WorkerClient* client)
    : problem_(problem), candidates_(candidates), client_(client) {}

absl::Status CheckRunner::Run(absl::Time end) {
  std::vector<int> indexes;
  for (const auto& [index, candidate] : *candidates_) {
    if (candidate.status == CandidateStatus::kFinalized) indexes.push_back(index);
  }
  if (indexes.empty()) return absl::OkStatus();
  std::stable_sort(indexes.begin(), indexes.end(), [this](int a, int b) {
    return HeuristicBefore(candidates_->at(a), candidates_->at(b));
  });
  // First what the others have to beat.
  std::vector<const Candidate*> all;
  for (const int index : indexes) all.push_back(&candidates_->at(index));
  const Candidate* graph_stock = FirstListed(all, Api::kGraph);
  const Candidate* legacy_stock = FirstListed(all, Api::kLegacy);
  std::stable_partition(indexes.begin(), indexes.end(), [&](int index) {
    const Candidate* candidate = &candidates_->at(index);
    return candidate == graph_stock || candidate == legacy_stock;
  });
  worker::Check request;
  for (const int index : indexes) request.add_indexes(index);
  request.set_time_budget_ms(std::max<int64_t>(1, absl::ToInt64Milliseconds(end - absl::Now())));
  const absl::Status status =
      client_->Check(request, [this](const worker::Checked& checked) { Take(checked); }).status();
  Judge();
  LeaveHopeless();
  return status;
}

void CheckRunner::Take(const worker::Checked& checked) {
  const auto found = candidates_->find(checked.index());
  if (found == candidates_->end() || found->second.status != CandidateStatus::kFinalized) return;
  Candidate& candidate = found->second;
  if (!checked.error_message().empty()) {
    candidate.status =
        checked.over_memory() ? CandidateStatus::kSkippedMemory : CandidateStatus::kFailed;
    candidate.error_message = checked.error_message();
    return;
  }
  OutputReport report;
  if (checked.has_error()) report.error = checked.error();
  report.magnitude = checked.magnitude();
  report.nonfinite = checked.nonfinite();
  report.out_of_bounds = checked.out_of_bounds();
  if (report.error && std::isfinite(*report.error) && *report.error >= 0) {
    candidate.error = Coarse(*report.error);
  }
  candidate.capture = ReadCapture(checked.capture());
  reports_[checked.index()] = std::move(report);
  if (checked.hopeless()) hopeless_.insert(checked.index());
  worker::Sample& run = warm_runs_[checked.index()];
  run.set_index(checked.index());
  run.set_gpu_us(checked.gpu_us());
  run.set_host_us(checked.host_us());
}

void CheckRunner::LeaveHopeless() {
  std::erase_if(passed_, [this](int index) {
    const double gpu_us = warm_runs_[index].gpu_us();
    if (!hopeless_.contains(index) || !(gpu_us > 0) || !std::isfinite(gpu_us)) return false;
    Candidate& candidate = candidates_->at(index);
    candidate.status = CandidateStatus::kTimed;
    candidate.samples_us = {static_cast<float>(gpu_us)};
    SummarizeSamples(&candidate);
    return true;
  });
}

void CheckRunner::Judge() {
  std::map<int, Verdict> verdicts;
  std::vector<Verdict> all;
  for (const auto& [index, report] : reports_) {
    all.push_back(verdicts[index] = JudgeOutput(problem_, candidates_->at(index), report));
  }
  const bool doubtful = ReferenceIsDoubtful(all);
  int differ = 0;
  for (const auto& [index, verdict] : verdicts) {
    const bool judged = !doubtful || verdict.certain;
    differ += verdict.why.empty() || verdict.certain ? 0 : 1;
    if (verdict.why.empty() || !judged) {
      passed_.push_back(index);
      continue;
    }
    Candidate& candidate = candidates_->at(index);
    candidate.status = CandidateStatus::kQuarantined;
    candidate.error_message = verdict.why;
    wrong_.emplace_back(index, verdict.why);
  }
  if (doubtful) {
    doubt_ = absl::StrCat("results could not be judged: ", differ, " of ", all.size(),
                          " candidates differ from the reference");
  }
}

}  // namespace convtune
