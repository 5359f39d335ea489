#include "server/worker/gpu_problem.h"

#include <functional>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "server/worker/cudnn_status.h"
#include "server/worker/legacy_notes.h"
#include "server/worker/legacy_search.h"

namespace convtune {
namespace {

constexpr uint64_t kSeed = 20240229;

}  // namespace

absl::StatusOr<std::unique_ptr<GpuProblem>> GpuProblem::Create(const ConvProblem& problem,
                                                               cudnnHandle_t handle, Timer* timer,
                                                               int64_t memory_budget_bytes) {
  const int64_t workspace_limit = memory_budget_bytes - problem.TensorBytes();
  if (workspace_limit < 0) {
    return absl::ResourceExhaustedError(absl::StrCat("memory_budget_bytes: the tensors need ",
                                                     problem.TensorBytes(), " of ",
                                                     memory_budget_bytes));
  }
  CudnnTarget target;
  target.handle = handle;
  ASSIGN_OR_RETURN(OperationGraph graph, OperationGraph::Create(problem, target));
  return std::unique_ptr<GpuProblem>(
      new GpuProblem(problem, std::move(graph), timer, workspace_limit));
}

absl::StatusOr<ListingEnd> GpuProblem::List(const ListingOptions& options,
                                            const OnListed& on_listed) {
  ListingSink sink(options, on_listed);
  if (options.graph_api) {
    ListGraphCandidates(graph_, options, &sink);
  }
  if (options.legacy_api && options.depth != ListingDepth::kStock && !sink.Over()) {
    const absl::Status status = ListLegacy(&sink);
    if (!status.ok()) {
      AbortIfContextIsLost();
      sink.AddRefusal(status);
    }
  }
  return sink.end();
}

absl::StatusOr<PreparedCandidate> GpuProblem::Prepare(const CandidateId& id) {
  Prepared prepared;
  if (const auto* config = std::get_if<EngineConfig>(&id)) {
    absl::StatusOr<ExecutionPlan> plan = ExecutionPlan::Create(graph_, *config);
    if (!plan.ok()) {
      AbortIfContextIsLost();
      return plan.status();
    }
    prepared.workspace_bytes = plan->workspace_bytes();
    prepared.plan = *std::move(plan);
  } else {
    ASSIGN_OR_RETURN(LegacyConvolution * legacy, Legacy());
    ASSIGN_OR_RETURN(prepared.workspace_bytes,
                     legacy->WorkspaceBytes(std::get<LegacyAlgorithm>(id)));
  }
  const PreparedCandidate result = {prepared.workspace_bytes,
                                    prepared.workspace_bytes > workspace_limit_};
  if (!result.over_memory) {
    prepared_[id] = std::move(prepared);
  }
  return result;
}

absl::Status GpuProblem::BeginMeasure(const std::vector<CandidateId>& ids) {
  RETURN_IF_ERROR(EnsureTensors());
  std::set<int64_t, std::greater<>> sizes;
  for (const CandidateId& id : ids) {
    const auto found = prepared_.find(id);
    if (found == prepared_.end()) {
      return absl::FailedPreconditionError(absl::StrCat(ToText(id), ": is not prepared"));
    }
    sizes.insert(found->second.workspace_bytes);
  }
  // Less may be free than at the start: then the largest go without, see
  // Launch, and the others are timed.
  for (const int64_t size : sizes) {
    if (size <= workspace_.bytes()) {
      break;
    }
    workspace_ = DeviceBuffer();
    absl::StatusOr<DeviceBuffer> buffer = DeviceBuffer::Allocate(size);
    if (buffer.ok()) {
      workspace_ = *std::move(buffer);
    } else if (!absl::IsResourceExhausted(buffer.status())) {
      return buffer.status();
    }
  }
  for (const CandidateId& id : ids) {
    Prepared& prepared = prepared_.at(id);
    if (prepared.plan.has_value() && prepared.workspace_bytes <= workspace_.bytes()) {
      ASSIGN_OR_RETURN(prepared.variant_pack, MakeVariantPack(prepared.workspace_bytes));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TimedRun> GpuProblem::Run(const CandidateId& id) {
  const auto found = prepared_.find(id);
  if (found == prepared_.end()) {
    return absl::FailedPreconditionError(absl::StrCat(ToText(id), ": is not prepared"));
  }
  absl::StatusOr<TimedRun> timed =
      timer_->Time([&]() -> absl::Status { return Launch(id, found->second); });
  if (!timed.ok()) {
    AbortIfContextIsLost();
  }
  return timed;
}

absl::Status GpuProblem::Launch(const CandidateId& id, const Prepared& prepared) {
  if (prepared.workspace_bytes > workspace_.bytes()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("its workspace of ", prepared.workspace_bytes, " bytes does not fit"));
  }
  if (prepared.plan.has_value()) {
    return ToStatus(cudnnBackendExecute(graph_.target().handle, prepared.plan->descriptor().get(),
                                        prepared.variant_pack.get()),
                    "execute");
  }
  ASSIGN_OR_RETURN(LegacyConvolution * legacy, Legacy());
  return legacy->Launch(std::get<LegacyAlgorithm>(id), pointers_, workspace_.data(),
                        prepared.workspace_bytes);
}

absl::StatusOr<LegacyConvolution*> GpuProblem::Legacy() {
  if (legacy_ == nullptr) {
    const std::string obstacle = LegacyObstacle(problem_);
    if (!obstacle.empty()) {
      return absl::UnimplementedError(obstacle);
    }
    ASSIGN_OR_RETURN(legacy_, LegacyConvolution::Create(problem_, graph_.target().handle));
  }
  return legacy_.get();
}

absl::Status GpuProblem::EnsureTensors() {
  if (!buffers_.empty()) {
    return absl::OkStatus();
  }
  std::vector<DeviceBuffer> buffers;
  ConvPointers pointers;
  for (const GraphTensor& tensor : graph_.tensors()) {
    ASSIGN_OR_RETURN(DeviceBuffer buffer,
                     DeviceBuffer::Allocate(tensor.elements * SizeOf(tensor.type)));
    // Activations and their gradients come from behind a ReLU; w and the bias
    // do not.
    const bool rectified = tensor.role != TensorRole::kW && tensor.role != TensorRole::kBias;
    RETURN_IF_ERROR(
        FillWithRandom(tensor.type, rectified, kSeed + static_cast<uint64_t>(tensor.uid), &buffer));
    switch (tensor.role) {
      case TensorRole::kX:
        pointers.x = buffer.data();
        break;
      case TensorRole::kW:
        pointers.w = buffer.data();
        break;
      case TensorRole::kY:
        pointers.y = buffer.data();
        break;
      case TensorRole::kResidual:
      case TensorRole::kBias:
        break;
    }
    buffers.push_back(std::move(buffer));
  }
  buffers_ = std::move(buffers);
  pointers_ = pointers;
  return absl::OkStatus();
}

absl::StatusOr<Descriptor> GpuProblem::MakeVariantPack(int64_t workspace_bytes) {
  std::vector<int64_t> uids;
  std::vector<void*> pointers;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    uids.push_back(graph_.tensors()[i].uid);
    pointers.push_back(buffers_[i].data());
  }
  void* workspace = workspace_bytes > 0 ? workspace_.data() : nullptr;
  ASSIGN_OR_RETURN(Descriptor pack, Descriptor::Create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
  RETURN_IF_ERROR(pack.SetInt64s(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, uids));
  RETURN_IF_ERROR(pack.SetPointers(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, pointers));
  RETURN_IF_ERROR(pack.SetPointers(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, {workspace}));
  RETURN_IF_ERROR(pack.Finalize());
  return pack;
}

absl::Status GpuProblem::ListLegacy(ListingSink* sink) {
  ASSIGN_OR_RETURN(LegacyConvolution * legacy, Legacy());
  RETURN_IF_ERROR(EnsureTensors());
  return ListLegacyAlgorithms(problem_, legacy, pointers_, workspace_limit_, sink);
}

}  // namespace convtune
