#include "server/tuning/check_runner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/model/tuning/ranking.h"
#include "server/tuning/worker_requests.h"

namespace convtune::tuning {
namespace {

constexpr char kNoJudge[] = "the worker's check of results failed its self-check";

// Rounds to two digits, upwards: candidates that differ by less are alike, and the
// index need not hold them all.
double Coarse(double error) {
  if (error <= 0) return 0;
  const double unit = std::pow(10.0, std::floor(std::log10(error)) - 1);
  return std::ceil(error / unit - 1e-6) * unit;
}

}  // namespace

CheckRunner::CheckRunner(const ConvProblem& problem,
                         const std::map<CandidateId, QuarantineEntry>& quarantined,
                         const SelfCheck& self_check, std::map<int, Candidate>* candidates,
                         supervisor::WorkerClient* client)
    : problem_(problem),
      quarantined_(quarantined),
      self_check_(self_check),
      candidates_(candidates),
      client_(client) {}

absl::Status CheckRunner::Run(SteadyTime end) {
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
  worker::v1::Request request;
  request.mutable_check();
  request.mutable_indexes()->Add(indexes.begin(), indexes.end());
  request.set_time_budget_ms(MillisUntil(end));
  absl::Status status =
      client_->Call(request, [this](const worker::v1::Reply& reply) { Take(reply); }).status();
  Judge();
  LeaveHopeless();
  return status;
}

void CheckRunner::Take(const worker::v1::Reply& reply) {
  const worker::v1::Checked& checked = reply.checked();
  const auto found = candidates_->find(reply.index());
  if (found == candidates_->end() || found->second.status != CandidateStatus::kFinalized) return;
  Candidate& candidate = found->second;
  if (!checked.error_message().empty()) {
    candidate.status =
        checked.over_memory() ? CandidateStatus::kSkippedMemory : CandidateStatus::kFailed;
    candidate.error_message = checked.error_message();
    return;
  }
  if (checked.has_error() && std::isfinite(checked.error()) && checked.error() >= 0) {
    candidate.error = static_cast<float>(Coarse(checked.error()));  // as records keep it
  }
  if (v1::CaptureSupport_IsValid(checked.capture())) {
    candidate.capture = static_cast<CaptureSupport>(checked.capture());
  }
  reports_[reply.index()] = checked;
}

void CheckRunner::LeaveHopeless() {
  std::erase_if(passed_, [this](int index) {
    const worker::v1::Checked& report = reports_.at(index);
    const double gpu_us = report.gpu_us();
    if (!report.hopeless() || !(gpu_us > 0) || !std::isfinite(gpu_us)) return false;
    Candidate& candidate = candidates_->at(index);
    candidate.status = CandidateStatus::kTimed;
    candidate.samples_ns = {SampleNs(gpu_us)};
    SummarizeSamples(&candidate);
    return true;
  });
}

void CheckRunner::LeaveUnjudged(int index, const std::string& message) {
  Candidate& candidate = candidates_->at(index);
  ++doubt_.candidates;
  if (stocks_.contains(&candidate)) {
    (ApiOf(candidate.id) == Api::kGraph ? doubt_.graph_stock : doubt_.legacy_stock) = true;
    passed_.push_back(index);
    return;
  }
  candidate.status = CandidateStatus::kUnjudged;
  candidate.error_message = message;
}

void CheckRunner::Judge() {
  std::vector<const Candidate*> ran;
  for (const auto& [index, report] : reports_) ran.push_back(&candidates_->at(index));
  for (const Api api : {Api::kGraph, Api::kLegacy}) stocks_.insert(FirstListed(ran, api));
  std::map<int, decision::OutputVerdict> findings;
  std::vector<int> voters;
  std::vector<decision::Vote> votes;
  const bool may_judge = self_check_.works(SelfCheckBit::kChecker);
  for (const auto& [index, report] : reports_) {
    const Candidate& candidate = candidates_->at(index);
    if (!may_judge) {
      LeaveUnjudged(index, kNoJudge);
      doubt_.why = kNoJudge;
      continue;
    }
    const decision::OutputVerdict& finding = findings[index] =
        decision::JudgeOutput(problem_, candidate, report);
    voters.push_back(index);
    votes.push_back({candidate.id, stocks_.contains(&candidate), finding.fault});
  }
  for (const auto& [index, candidate] : *candidates_) {
    if (candidate.status != CandidateStatus::kQuarantined || !may_judge) continue;
    const auto entry = quarantined_.find(candidate.id);
    if (entry != quarantined_.end()) votes.push_back({candidate.id, false, entry->second.reason});
  }
  const std::vector<bool> doubted = decision::DoubtedFaults(votes);
  bool any_right = false;
  for (size_t i = 0; i < voters.size(); ++i) {
    const decision::OutputVerdict& finding = findings[voters[i]];
    Candidate& candidate = candidates_->at(voters[i]);
    if (!finding.fault) {
      any_right = true;
      passed_.push_back(voters[i]);
      if (finding.uses_tf32) candidate.numerical_notes |= NoteBit(NumericalNote::kTensorCore);
    } else if (doubted[i]) {
      LeaveUnjudged(voters[i], absl::StrCat("not believed: ", finding.message));
      if (doubt_.why.empty()) {
        doubt_.why =
            absl::StrCat(ToText(candidate.id), " ", finding.message,
                         "; more than a quarter of the engines, a whole API or a stock choice "
                         "show this, so the check is doubted");
      }
    } else {
      candidate.status = CandidateStatus::kQuarantined;
      candidate.error_message = finding.message;
      QuarantineEntry& entry = wrong_.emplace_back();
      entry.candidate = candidate.id;
      entry.reason = *finding.fault;
      entry.message = finding.message;
      entry.checker_version = client_->hello().checker_version();
    }
  }
  doubt_.none_is_right = doubt_.candidates > 0 && !any_right;
  if (doubt_.none_is_right) passed_.clear();
  std::sort(passed_.begin(), passed_.end());
}

}  // namespace convtune::tuning
