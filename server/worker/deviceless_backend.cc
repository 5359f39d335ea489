#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/unique_fd.h"
#include "server/worker/backend.h"
#include "server/worker/cudnn/cudnn_library.h"
#include "server/worker/cudnn/descriptor.h"
#include "server/worker/cudnn/graph_builder.h"
#include "server/worker/device/device_info.h"
#include "server/worker/search/graph_listing.h"

namespace convtune::worker {
namespace device {

// Both are in the file that embed.cmake writes.
extern const unsigned char kDriverStub[];
extern const size_t kDriverStubBytes;

}  // namespace device

namespace {

using device::kDriverStub;
using device::kDriverStubBytes;

constexpr size_t kNeedsLibcuda = 92700;  // cuDNN 9.27

// Loads a library that stands in for libcuda.so.1 into this process, for its life, unless a
// libcuda.so.1 can be loaded: cuDNN 9.27 and later plan for a profile only where some is. It is
// never a file that another program could find, and has to come before cuDNN's own libraries.
absl::Status LoadDriverStub() {
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  // The second time it is the stub itself, by the name that it carries.
  if (dlopen("libcuda.so.1", kFlags) != nullptr) return absl::OkStatus();
  const UniqueFd file(memfd_create("convtune-driver-stub", MFD_CLOEXEC));
  if (!file.valid()) return absl::ErrnoToStatus(errno, "memfd_create");
  for (size_t written = 0; written < kDriverStubBytes;) {
    const ssize_t size = write(file.get(), kDriverStub + written, kDriverStubBytes - written);
    if (size <= 0) return absl::ErrnoToStatus(errno, "write the stub of libcuda.so.1");
    written += static_cast<size_t>(size);
  }
  const std::string path = absl::StrCat("/proc/self/fd/", file.get());
  if (dlopen(path.c_str(), kFlags) == nullptr) {
    return absl::InternalError(absl::StrCat("load the stub of libcuda.so.1: ", dlerror()));
  }
  return absl::OkStatus();
}

absl::Status NeedsGpu() { return absl::FailedPreconditionError("a profile has no GPU to run on"); }

// Adds to cuDNN's refusal of a profile what the profile or the machine lacks that only cuDNN 9.27
// and later ask for.
absl::Status Explain(const absl::Status& refusal, const device::DeviceProfile& profile,
                     const absl::Status& stub) {
  std::string why(refusal.message());
  if (!absl::StrContains(profile.properties_json, "\"memoryBusWidth\"")) {
    absl::StrAppend(&why, "; properties.memoryBusWidth: must be given from cuDNN 9.27 on, in bits");
  }
  if (!stub.ok()) absl::StrAppend(&why, "; there is no libcuda.so.1: ", stub.message());
  return {refusal.code(), why};
}

class DevicelessProblem : public BackendProblem {
 public:
  DevicelessProblem(cudnn::OperationGraph graph, int64_t workspace_limit)
      : graph_(std::move(graph)), workspace_limit_(workspace_limit) {}

  worker::v1::Outcome List(const worker::v1::OpenProblem& request, SteadyTime deadline,
                           const OnListed& on_listed) override {
    search::ListingSink sink(request.max_candidates(), deadline, on_listed);
    if (request.graph_api()) {
      search::ListGraphCandidates(graph_, request.listing(), &sink);
    }
    return sink.outcome();
  }

  absl::StatusOr<worker::v1::Prepared> Prepare(const CandidateId& id) override {
    const auto* config = std::get_if<EngineConfig>(&id);
    if (config == nullptr) {
      return NeedsGpu();
    }
    // Nothing will run, so the plan is not kept.
    ASSIGN_OR_RETURN(const cudnn::ExecutionPlan plan,
                     cudnn::ExecutionPlan::Create(graph_, *config));
    worker::v1::Prepared prepared;
    prepared.set_workspace_bytes(plan.workspace_bytes);
    prepared.set_over_memory(plan.workspace_bytes > workspace_limit_);
    return prepared;
  }

  absl::Status BeginMeasure(const std::vector<CandidateId>& /*ids*/) override { return NeedsGpu(); }
  absl::StatusOr<worker::v1::Checked> Check(const CandidateId& /*id*/) override {
    return NeedsGpu();
  }
  absl::StatusOr<TimedRun> Run(const CandidateId& /*id*/,
                               const worker::v1::Measure& /*how*/) override {
    return NeedsGpu();
  }

 private:
  const cudnn::OperationGraph graph_;
  const int64_t workspace_limit_;
};

// Has cuDNN plan for a GPU that is not there.
class DevicelessBackend : public Backend {
 public:
  DevicelessBackend(device::DeviceInfo info, cudnn::Descriptor properties)
      : info_(std::move(info)), properties_(std::move(properties)) {}

  const Environment& environment() const override { return info_.environment; }
  const Provenance& provenance() const override { return info_.provenance; }
  ConditionsLook LookAtConditions() override { return {{}, "a profile has no GPU"}; }
  absl::StatusOr<std::unique_ptr<BackendProblem>> Open(const ConvProblem& problem,
                                                       int64_t memory_budget_bytes) override {
    const int64_t budget =
        memory_budget_bytes > 0 ? memory_budget_bytes : info_.provenance.memory_bytes;
    const int64_t workspace_limit = budget - problem.TensorBytes();
    if (workspace_limit < 0) {
      return absl::ResourceExhaustedError(absl::StrCat("memory_budget_bytes: the tensors need ",
                                                       problem.TensorBytes(), " of ", budget));
    }
    cudnn::CudnnTarget target;
    target.device_properties = &properties_;
    ASSIGN_OR_RETURN(cudnn::OperationGraph graph, cudnn::OperationGraph::Create(problem, target));
    return std::make_unique<DevicelessProblem>(std::move(graph), workspace_limit);
  }

 private:
  const device::DeviceInfo info_;
  const cudnn::Descriptor properties_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeDevicelessBackend(
    const device::DeviceProfile& profile) {
  // Only where nothing is planned without it: with some libcuda.so.1 cuDNN's
  // FALLBACK also lists an engine whose plans take seconds to build.
  const absl::Status stub =
      cudnnGetVersion() >= kNeedsLibcuda ? LoadDriverStub() : absl::OkStatus();
  cudnn::KeepNvrtcLoaded();
  ASSIGN_OR_RETURN(cudnn::Descriptor properties,
                   cudnn::Descriptor::Create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR));
  properties.Set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, profile.properties_json);
  if (const absl::Status taken = properties.Finalize(); !taken.ok()) {
    return Explain(taken, profile, stub);
  }
  return std::make_unique<DevicelessBackend>(device::DescribeProfile(profile),
                                             std::move(properties));
}

}  // namespace convtune::worker
