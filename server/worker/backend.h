// A Backend is what a session works against: a GPU, or a profile that stands in
// for one. This header is the ground of the worker: its folders may include it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "convtune/worker/worker.pb.h"
#include "proto/base/clock.h"
#include "proto/model/environment.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/candidate.h"
#include "proto/model/tuning/conditions.h"

namespace convtune::worker {
namespace device {
struct DeviceProfile;
}  // namespace device

// A Stamp is what a stamp kernel stored; 0 where it did not.
struct Stamp {
  uint64_t timer_ns = 0;
  uint64_t cycles = 0;
};

// One sample of a candidate.
struct TimedRun {
  double gpu_us = 0;
  double host_us = 0;       // time that the launch took the host
  double sm_clock_mhz = 0;  // 0: not taken
  // A blocking kernel held the stream during the launch, so that its time is not in gpu_us.
  bool blocked = false;
  int runs = 1;                      // whose mean the times are
  int gave_up = 0;                   // attempts before it that were thrown away
  std::array<Stamp, 2> stamps = {};  // before and after its runs
};

// The outcome of a look at the GPU.
struct ConditionsLook {
  Conditions conditions;
  // The reason for which conditions.known is false, or, if it is true, the reason for
  // which other processes cannot be seen. Empty: neither.
  std::string unknown_reason;
  // The total time, so far, for which heat and the power limit have kept the clocks
  // down; 0 if it cannot be told.
  int64_t hot_ns = 0;
  int64_t capped_ns = 0;
};

// One problem, opened. Not thread-safe. REQUIRES: what BeginMeasure, Check and Run are called with
// was prepared, and is not over the memory budget.
class BackendProblem {
 public:
  // Called with each candidate once, in listing order. The candidate's status
  // says nothing yet, but kUnsupported with its text where the legacy search
  // refused it. Returns false to end the listing.
  using OnListed = std::function<bool(const Candidate&)>;

  virtual ~BackendProblem() = default;

  // Lists the candidates that the request asks for until the deadline, but for its
  // candidate_texts, which are the caller's to add. The outcome's message has the parts of the
  // listing that cuDNN refused, in its words; `ok` is left to the caller.
  virtual worker::v1::Outcome List(const worker::v1::OpenProblem& request, SteadyTime deadline,
                                   const OnListed& on_listed) = 0;
  // Builds the candidate's plan and keeps it until the problem ends. Says what workspace it
  // needs, and whether that is over the memory budget: then it may not run. Errors are
  // cuDNN's.
  virtual absl::StatusOr<worker::v1::Prepared> Prepare(const CandidateId& id) = 0;
  // Gives what a prepared candidate needs to run: tensors and workspace.
  // Called before Check and Run, with all that is about to be run.
  virtual absl::Status BeginMeasure(const std::vector<CandidateId>& ids) = 0;
  // Runs a prepared candidate, compares what it computed with a reference,
  // looks at what it wrote, and, unless it is hopeless, times a second run and
  // tries to capture it. Says everything of it but its index.
  virtual absl::StatusOr<worker::v1::Checked> Check(const CandidateId& id) = 0;
  // Takes one sample of a prepared candidate, and waits for its end. REQUIRES: `how` names a launch
  // mode and a cache state.
  virtual absl::StatusOr<TimedRun> Run(const CandidateId& id, const worker::v1::Measure& how) = 0;
  // Fills in what conditions say of the runs so far: retried_runs and unblocked.
  virtual void DescribeRuns(Conditions* /*conditions*/) const {}
};

// Called before each step of the start that may hang, with its name.
using OnStart = std::function<absl::Status(const char* step)>;

// Not thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual const Environment& environment() const = 0;
  virtual const Provenance& provenance() const = 0;
  // True if candidates can be timed and legacy algorithms searched.
  bool has_gpu() const { return !environment().profile; }
  // Asks NVML; a profile has nothing to ask for.
  virtual ConditionsLook LookAtConditions() = 0;
  // Checks the worker's own instruments on the GPU; see self_check.h. Errors are
  // those of `on_step`. A profile has none to check.
  virtual absl::StatusOr<SelfCheck> CheckSelf(
      uint32_t /*lost_steps*/, const std::function<absl::Status(uint32_t step)>& /*on_step*/) {
    return SelfCheck();
  }
  // From now on instruments that do not work are not used.
  virtual void Apply(const SelfCheck& /*check*/) {}
  // To be called after each failure, before it is reported. Makes the GPU ready for what
  // comes next, or ends the process where nothing that follows could be believed.
  virtual void Recover() {}
  // `memory_budget_bytes` holds for tensors and workspace together; 0: what is
  // free. RESOURCE_EXHAUSTED if the tensors alone do not fit; other errors are
  // cuDNN's.
  virtual absl::StatusOr<std::unique_ptr<BackendProblem>> Open(const ConvProblem& problem,
                                                               int64_t memory_budget_bytes) = 0;
};

// Works on a GPU. UNAVAILABLE without a driver or GPU, else CUDA's, cuDNN's or `on_step`'s error.
absl::StatusOr<std::unique_ptr<Backend>> MakeGpuBackend(int ordinal, const OnStart& on_step);

// Has cuDNN list candidates and build plans for a GPU that is not there, and needs no driver. What
// would run something fails with FAILED_PRECONDITION. INVALID_ARGUMENT or INTERNAL if cuDNN does
// not take the properties.
absl::StatusOr<std::unique_ptr<Backend>> MakeDevicelessBackend(
    const device::DeviceProfile& profile);

}  // namespace convtune::worker
