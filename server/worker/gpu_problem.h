// A problem on a card.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "server/worker/backend.h"
#include "server/worker/device_memory.h"
#include "server/worker/graph_builder.h"
#include "server/worker/graph_listing.h"
#include "server/worker/legacy_convolution.h"
#include "server/worker/plan.h"
#include "server/worker/timer.h"

namespace convtune {

// Tensors are made when something is first run. A run that destroys the CUDA
// context ends the process, see AbortIfContextIsLost.
class GpuProblem : public BackendProblem {
 public:
  // `handle` and `timer` outlive the problem. RESOURCE_EXHAUSTED if the
  // tensors alone exceed the budget; else cuDNN's errors.
  static absl::StatusOr<std::unique_ptr<GpuProblem>> Create(const ConvProblem& problem,
                                                            cudnnHandle_t handle, Timer* timer,
                                                            int64_t memory_budget_bytes);

  absl::StatusOr<ListingEnd> List(const ListingOptions& options,
                                  const OnListed& on_listed) override;
  absl::StatusOr<PreparedCandidate> Prepare(const CandidateId& id) override;
  absl::Status BeginMeasure(const std::vector<CandidateId>& ids) override;
  absl::StatusOr<TimedRun> Run(const CandidateId& id) override;

 private:
  // What is kept of a prepared candidate; legacy algorithms have no plan.
  struct Prepared {
    std::optional<ExecutionPlan> plan;
    Descriptor variant_pack;  // for the current workspace
    int64_t workspace_bytes = 0;
  };

  GpuProblem(const ConvProblem& problem, OperationGraph graph, Timer* timer,
             int64_t workspace_limit)
      : problem_(problem),
        graph_(std::move(graph)),
        timer_(timer),
        workspace_limit_(workspace_limit) {}

  // Fails with the reason where the legacy API cannot express the problem.
  absl::StatusOr<LegacyConvolution*> Legacy();
  absl::Status EnsureTensors();
  absl::StatusOr<Descriptor> MakeVariantPack(int64_t workspace_bytes);
  absl::Status ListLegacy(ListingSink* sink);
  absl::Status Launch(const CandidateId& id, const Prepared& prepared);

  const ConvProblem problem_;
  const OperationGraph graph_;
  Timer* const timer_;
  const int64_t workspace_limit_;
  std::unique_ptr<LegacyConvolution> legacy_;
  std::vector<DeviceBuffer> buffers_;  // in the order of graph_.tensors()
  ConvPointers pointers_;
  DeviceBuffer workspace_;
  std::map<CandidateId, Prepared> prepared_;
};

}  // namespace convtune
