// A backend whose candidates and times a test decides.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/worker/backend.h"

namespace convtune::worker {

// One candidate of FakeBackend.
struct FakeCandidate {
  Candidate candidate;
  absl::Status prepare = absl::OkStatus();
  worker::v1::Prepared prepared;
  int runs_until_failure = -1;  // -1: never fails
  absl::StatusOr<worker::v1::Checked> checked = worker::v1::Checked();
};

class FakeBackend : public Backend {
 public:
  FakeBackend() {
    environment_.gpu_model = "Test GPU";
    environment_.cc_major = 9;
    environment_.sm_count = 1;
    environment_.cudnn = {9, 19, 0};
    environment_.library = LibraryConfiguration::kFull;
  }

  // From now on it is a profile.
  void TakeGpuAway() { environment_.profile = true; }

  FakeCandidate& Add(int64_t engine) {
    FakeCandidate candidate;
    candidate.candidate.id = EngineConfig{engine, {}};
    candidates.push_back(candidate);
    return candidates.back();
  }

  const Environment& environment() const override { return environment_; }
  const Provenance& provenance() const override { return provenance_; }
  ConditionsLook LookAtConditions() override {
    look.hot_ns += hot_ns_between_looks;
    look.capped_ns += capped_ns_between_looks;
    return look;
  }
  absl::StatusOr<SelfCheck> CheckSelf(
      uint32_t lost_steps, const std::function<absl::Status(uint32_t step)>& on_step) override {
    lost_self_check_steps = lost_steps;
    ++self_checks;
    if (!self_check.known()) return self_check;
    if (const absl::Status status = on_step(4); !status.ok()) return status;
    return self_check;
  }
  void Apply(const SelfCheck& check) override { applied = check; }
  void Recover() override { ++recoveries; }
  absl::StatusOr<std::unique_ptr<BackendProblem>> Open(const ConvProblem& problem,
                                                       int64_t memory_budget_bytes) override;

  SelfCheck self_check;
  int self_checks = 0;  // that were run
  uint32_t lost_self_check_steps = 0;
  SelfCheck applied;
  int recoveries = 0;                           // calls of Recover
  absl::Status open, begin = absl::OkStatus();  // what these calls fail with
  int retried_runs = 0;
  std::string unblocked;
  std::vector<FakeCandidate> candidates;
  std::vector<int64_t> runs;  // engines in the order in which they were run
  worker::v1::Measure how;    // of the last one
  std::vector<int64_t> checks;
  worker::v1::OpenProblem listed;                    // the last
  SteadyTime deadline = SteadyTime::InfinitePast();  // of it
  worker::v1::Outcome end;
  int open_problems = 0;
  int prepared = 0;  // calls of Prepare
  ConditionsLook look = {{}, "there is no GPU"};
  int64_t hot_ns_between_looks = 0;
  int64_t capped_ns_between_looks = 0;
  bool blocks = true;

 private:
  Environment environment_;
  Provenance provenance_;
};

class FakeProblem : public BackendProblem {
 public:
  explicit FakeProblem(FakeBackend* backend) : backend_(backend) { ++backend_->open_problems; }
  ~FakeProblem() override { --backend_->open_problems; }

  worker::v1::Outcome List(const worker::v1::OpenProblem& request, SteadyTime deadline,
                           const OnListed& on_listed) override {
    backend_->listed = request;
    backend_->deadline = deadline;
    for (const FakeCandidate& candidate : backend_->candidates) {
      if (!on_listed(candidate.candidate)) {
        break;
      }
    }
    return backend_->end;
  }
  absl::StatusOr<worker::v1::Prepared> Prepare(const CandidateId& id) override {
    ++backend_->prepared;
    const FakeCandidate& candidate = Find(id);
    if (!candidate.prepare.ok()) {
      return candidate.prepare;
    }
    return candidate.prepared;
  }
  absl::Status BeginMeasure(const std::vector<CandidateId>& /*ids*/) override {
    return backend_->begin;
  }
  void DescribeRuns(Conditions* conditions) const override {
    conditions->retried_runs = backend_->retried_runs;
    conditions->unblocked = backend_->unblocked;
  }
  absl::StatusOr<worker::v1::Checked> Check(const CandidateId& id) override {
    backend_->checks.push_back(std::get<EngineConfig>(id).engine_index);
    return Find(id).checked;
  }
  absl::StatusOr<TimedRun> Run(const CandidateId& id, const worker::v1::Measure& how) override {
    backend_->how = how;
    FakeCandidate& candidate = Find(id);
    const int64_t engine = std::get<EngineConfig>(id).engine_index;
    backend_->runs.push_back(engine);
    if (candidate.runs_until_failure == 0) {
      return absl::InternalError("it fell over");
    }
    --candidate.runs_until_failure;
    TimedRun run = {static_cast<double>(engine), 0.5, 1755};
    run.blocked = backend_->blocks;
    return run;
  }

 private:
  FakeCandidate& Find(const CandidateId& id) {
    for (FakeCandidate& candidate : backend_->candidates) {
      if (candidate.candidate.id == id) {
        return candidate;
      }
    }
    std::abort();
  }

  FakeBackend* const backend_;
};

inline absl::StatusOr<std::unique_ptr<BackendProblem>> FakeBackend::Open(
    const ConvProblem& /*problem*/, int64_t /*memory_budget_bytes*/) {
  if (!open.ok()) return open;
  return std::make_unique<FakeProblem>(this);
}

}  // namespace convtune::worker
