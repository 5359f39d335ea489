#include "server/worker/gpu_problem.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/status_macros.h"
#include "proto/convert/record_codec.h"
#include "server/worker/cudnn/cudnn_status.h"
#include "server/worker/cudnn/graph_builder.h"
#include "server/worker/cudnn/legacy_convolution.h"
#include "server/worker/device/cuda_stream.h"
#include "server/worker/device/device_memory.h"
#include "server/worker/search/graph_listing.h"
#include "server/worker/search/legacy_search.h"
#include "server/worker/search/listing_sink.h"
#include "server/worker/session.h"
#include "server/worker/verify/output_check.h"
#include "server/worker/verify/reference_data.h"
#include "server/worker/verify/self_check.h"

namespace convtune::worker {
namespace {

// Zones around output and workspace, and what comparing needs.
constexpr int64_t kCheckBytes = 4 * device::GuardedBuffer::kZoneBytes + verify::OutputCheck::kBytes;

// "eng22", or "algorithm 1".
std::string EngineOf(const CandidateId& id) {
  const auto* config = std::get_if<EngineConfig>(&id);
  return config != nullptr ? absl::StrCat("eng", config->engine_index)
                           : absl::StrCat("algorithm ", std::get<LegacyAlgorithm>(id).algorithm);
}

// Workspaces of copies lie one behind the other, each aligned as memory of the GPU is.
int64_t Aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

constexpr char kNoCaptures[] =
    "nothing is captured: the self-check found that a capture that fails spoils what comes after";

// A ProblemTensors owns the tensors of a problem on a GPU.
//
// Inputs are filled with random values, blocks of which are repeated; the
// output lies between red zones. There may be copies of all of them, which cold runs
// take in turn: rotating buffers, as in FlashInfer's bench_gpu_time_with_cudagraph and
// Composable Kernel's RotatingMemWrapper. Copy 0 are the tensors themselves. Move-only.
class ProblemTensors {
 public:
  // Uploads. Errors are CUDA's.
  static absl::StatusOr<ProblemTensors> Create(const ConvProblem& problem,
                                               const cudnn::OperationGraph& graph,
                                               verify::ReferenceData* host) {
    ProblemTensors tensors;
    tensors.tensors_ = graph.tensors();
    tensors.fresh_ =
        problem.operation() == Operation::kFwd ? cudnn::TensorRole::kX : cudnn::TensorRole::kY;
    Copy first;
    for (const cudnn::GraphTensor& tensor : tensors.tensors_) {
      if (tensor.output) {
        ASSIGN_OR_RETURN(tensors.output_, device::GuardedBuffer::Allocate(Bytes(tensor)));
        tensors.output_elements_ = tensor.elements;
        first.data.push_back(tensors.output_.data());
        continue;
      }
      ASSIGN_OR_RETURN(device::DeviceBuffer buffer, device::DeviceBuffer::Allocate(Bytes(tensor)));
      RETURN_IF_ERROR(device::FillWith(host->Block(tensor.uid), &buffer));
      first.data.push_back(buffer.data());
      first.buffers.push_back(std::move(buffer));
    }
    tensors.copies_.push_back(std::move(first));
    return tensors;
  }

  const device::GuardedBuffer& output() const { return output_; }
  int64_t output_elements() const { return output_elements_; }

  // Memory of the GPU that a further copy takes at most.
  int64_t copy_bytes() const {
    int64_t bytes = 0;
    for (const cudnn::GraphTensor& tensor : tensors_) bytes += device::WholePages(Bytes(tensor));
    return bytes;
  }

  // Adds copies until there are `count`, as far as the GPU's memory goes. Waits. Errors are
  // CUDA's.
  absl::Status AddCopies(int count) {
    while (copies() < count) {
      absl::StatusOr<Copy> copy = MakeCopy();
      if (absl::IsResourceExhausted(copy.status())) break;
      RETURN_IF_ERROR(copy.status());
      copies_.push_back(*std::move(copy));
    }
    return cudnn::ToStatus(cudaDeviceSynchronize(), "copy tensors");
  }

  void RemoveCopies() { copies_.erase(copies_.begin() + 1, copies_.end()); }
  int copies() const { return static_cast<int>(copies_.size()); }
  // The memory of graph.tensors(), in their order.
  const std::vector<void*>& data(int copy) const { return copies_[static_cast<size_t>(copy)].data; }
  // The same memory for the legacy API.
  cudnn::ConvPointers pointers(int copy) const {
    cudnn::ConvPointers pointers;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].role == cudnn::TensorRole::kX) pointers.x = data(copy)[i];
      if (tensors_[i].role == cudnn::TensorRole::kW) pointers.w = data(copy)[i];
      if (tensors_[i].role == cudnn::TensorRole::kY) pointers.y = data(copy)[i];
    }
    return pointers;
  }

  // The input that the layer before has just written: x, or the gradient of y.
  timing::MemorySpan fresh_input(int copy) const {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].role == fresh_) return {data(copy)[i], Bytes(tensors_[i])};
    }
    return {};
  }

 private:
  struct Copy {
    std::vector<device::DeviceBuffer> buffers;  // copy 0's output is not one of them
    std::vector<void*> data;
  };

  ProblemTensors() = default;

  static int64_t Bytes(const cudnn::GraphTensor& tensor) {
    return tensor.elements * SizeOf(tensor.type);
  }

  absl::StatusOr<Copy> MakeCopy() const {
    Copy copy;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const int64_t bytes = Bytes(tensors_[i]);
      ASSIGN_OR_RETURN(device::DeviceBuffer buffer, device::DeviceBuffer::Allocate(bytes));
      if (!tensors_[i].output) {
        RETURN_IF_ERROR(
            cudnn::ToStatus(cudaMemcpy(buffer.data(), data(0)[i], static_cast<size_t>(bytes),
                                       cudaMemcpyDeviceToDevice),
                            "copy a tensor"));
      }
      copy.data.push_back(buffer.data());
      copy.buffers.push_back(std::move(buffer));
    }
    return copy;
  }

  cudnn::TensorRole fresh_ = cudnn::TensorRole::kX;
  std::vector<cudnn::GraphTensor> tensors_;
  device::GuardedBuffer output_;
  int64_t output_elements_ = 0;
  std::vector<Copy> copies_;  // never empty
};

// A GpuProblem lists, builds, checks and times a problem's candidates on a GPU. Tensors are made
// when something is first run. After a failure that it returns, Backend::Recover is to be called.
class GpuProblem : public BackendProblem {
 public:
  // `workspace_limit`: of the memory budget, what tensors and the check of the output leave.
  GpuProblem(const ConvProblem& problem, cudnn::OperationGraph operation,
             const GpuResources& resources, int64_t workspace_limit, verify::InputValues inputs)
      : problem_(problem),
        operation_(std::move(operation)),
        resources_(resources),
        workspace_limit_(workspace_limit),
        inputs_(inputs) {}

  worker::v1::Outcome List(const worker::v1::OpenProblem& request, SteadyTime deadline,
                           const OnListed& on_listed) override {
    // What a listing of first configs names is rarely run: its inputs are made when it is.
    if (request.listing() != worker::v1::LISTING_FIRST_CONFIGS) EnsureHostWork();
    search::ListingSink sink(request.max_candidates(), deadline, on_listed);
    if (request.graph_api()) {
      search::ListGraphCandidates(operation_, request.listing(), &sink);
    }
    if (request.legacy_api() && !sink.Over()) {
      const absl::Status status = ListLegacy(request.listing(), &sink);
      if (!status.ok()) sink.AddRefusal(status);
    }
    return sink.outcome();
  }

  absl::StatusOr<worker::v1::Prepared> Prepare(const CandidateId& id) override {
    Prepared prepared;
    prepared.id = id;
    if (const auto* config = std::get_if<EngineConfig>(&id)) {
      ASSIGN_OR_RETURN(prepared.plan, cudnn::ExecutionPlan::Create(operation_, *config));
      prepared.workspace_bytes = prepared.plan->workspace_bytes;
    } else {
      ASSIGN_OR_RETURN(cudnn::LegacyConvolution * legacy, Legacy());
      ASSIGN_OR_RETURN(prepared.workspace_bytes,
                       legacy->WorkspaceBytes(std::get<LegacyAlgorithm>(id)));
    }
    worker::v1::Prepared result;
    result.set_workspace_bytes(prepared.workspace_bytes);
    result.set_over_memory(prepared.workspace_bytes > workspace_limit_);
    if (!result.over_memory()) {
      prepared_[id] = std::move(prepared);
    }
    return result;
  }

  absl::Status BeginMeasure(const std::vector<CandidateId>& ids) override {
    RETURN_IF_ERROR(EnsureTensors());
    sound_ = nullptr;
    awake_ = false;
    std::set<int64_t, std::greater<>> sizes;
    int most_runs = 1;
    for (const CandidateId& id : ids) {
      const Prepared* const prepared = &prepared_.at(id);
      sizes.insert(Aligned(prepared->workspace_bytes));
      most_runs = std::max(most_runs, timing::PlanSample(prepared->expected).runs);
    }
    RETURN_IF_ERROR(MakeCopies(most_runs, sizes));
    for (const CandidateId& id : ids) {
      Prepared* const prepared = &prepared_.at(id);
      prepared->variant_packs.clear();
      if (!prepared->plan.has_value() || !FitsWorkspace(*prepared)) continue;
      for (int copy = 0; copy < copies_; ++copy) {
        ASSIGN_OR_RETURN(cudnn::Descriptor pack, MakeVariantPack(prepared->workspace_bytes, copy));
        prepared->variant_packs.push_back(std::move(pack));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<TimedRun> Run(const CandidateId& id, const worker::v1::Measure& how) override {
    Prepared* const prepared = &prepared_.at(id);
    absl::StatusOr<TimedRun> run =
        cudnn::TryTwice([&] { return Sample(how, prepared); }, recover_, &retried_runs_);
    if (run.ok()) sound_ = prepared;
    return cudnn::OrThrowAway(
        std::move(run), [&] { return LaunchSound(*prepared); }, recover_);
  }

  void DescribeRuns(Conditions* conditions) const override {
    conditions->retried_runs = retried_runs_;
    std::vector<std::string> unblocked;
    const auto add = [&unblocked](const char* runs, const timing::BlockingPolicy& policy) {
      const std::string engines = policy.DisabledBy();
      if (engines.empty()) return;
      unblocked.push_back(absl::StrCat(runs, ", after ", engines, " gave up"));
    };
    add("launches", blocked_launches_);
    add("replays", blocked_replays_);
    conditions->unblocked = absl::StrJoin(unblocked, "; ");
  }

  absl::StatusOr<worker::v1::Checked> Check(const CandidateId& id) override {
    Prepared* const prepared = &prepared_.at(id);
    absl::StatusOr<worker::v1::Checked> checked = RunAndLook(prepared);
    if (checked.ok()) sound_ = prepared;
    return cudnn::OrThrowAway(
        std::move(checked), [&] { return LaunchSound(*prepared); }, recover_);
  }

  // Captures a prepared candidate with a call that no capture allows in between,
  // and gives what capturing failed with; OK if it did not fail. The stream can
  // be used after it as after every capture that fails. Between BeginMeasure and
  // Check.
  absl::Status SpoilCapture(const CandidateId& id) {
    const Prepared* const prepared = &prepared_.at(id);
    absl::Status captured =
        device::CapturedGraph::Capture(resources_.stream, [&]() -> absl::Status {
          RETURN_IF_ERROR(Launch(*prepared));
          absl::Status forbidden = cudnn::ToStatus(cudaStreamSynchronize(resources_.stream),
                                                   "wait for a stream that is captured");
          // cuDNN's own CUDA runtime meets the spoilt capture, too.
          Launch(*prepared).IgnoreError();
          return forbidden;
        }).status();
    if (!captured.ok()) recover_();
    return captured;
  }

 private:
  // The kept state of a prepared candidate; legacy algorithms have no plan.
  struct Prepared {
    CandidateId id;
    std::optional<cudnn::ExecutionPlan> plan;
    std::vector<cudnn::Descriptor> variant_packs;  // by copy, for the current workspace
    int64_t workspace_bytes = 0;
    int warm_copies = 0;  // that it has run on, with the current workspace
    // Its blocking kernels gave up, of launches from the stream and of replays.
    bool gave_up = false;
    bool replay_gave_up = false;
    std::vector<device::CapturedGraph> graphs;  // by copy, with the current workspace
    TimedRun expected;                          // by its last run
  };

  bool FitsWorkspace(const Prepared& prepared) const {
    return workspace_.allocated() && prepared.workspace_bytes <= workspace_.bytes();
  }

  // Fails with the reason where the legacy API cannot express the problem.
  absl::StatusOr<cudnn::LegacyConvolution*> Legacy() {
    if (legacy_ == nullptr) {
      const std::string obstacle = cudnn::LegacyObstacle(problem_);
      if (!obstacle.empty()) {
        return absl::UnimplementedError(obstacle);
      }
      ASSIGN_OR_RETURN(legacy_, cudnn::LegacyConvolution::Create(problem_, resources_.handle));
    }
    return legacy_.get();
  }

  // Has the inputs and the reference made on threads of the host; does not wait.
  void EnsureHostWork() {
    if (host_ == nullptr) {
      host_ = std::make_unique<verify::ReferenceData>(
          problem_, operation_.tensors(), verify::ReferenceData::ThreadCount(), inputs_);
    }
  }

  absl::Status EnsureTensors() {
    EnsureHostWork();
    if (!tensors_.has_value()) {
      ASSIGN_OR_RETURN(tensors_, ProblemTensors::Create(problem_, operation_, host_.get()));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<cudnn::Descriptor> MakeVariantPack(int64_t workspace_bytes, int copy) {
    void* workspace = workspace_bytes > 0 ? Workspace(workspace_bytes, copy) : nullptr;
    std::vector<int64_t> uids;
    for (const cudnn::GraphTensor& tensor : operation_.tensors()) uids.push_back(tensor.uid);
    ASSIGN_OR_RETURN(cudnn::Descriptor pack,
                     cudnn::Descriptor::Create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
    pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, uids);
    pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, tensors_->data(copy));
    pack.Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace);
    RETURN_IF_ERROR(pack.Finalize());
    return pack;
  }

  absl::Status ListLegacy(worker::v1::Listing depth, search::ListingSink* sink) {
    ASSIGN_OR_RETURN(cudnn::LegacyConvolution * legacy, Legacy());
    const bool searches = depth != worker::v1::LISTING_FIRST_CONFIGS;
    // Listing what cuDNN would choose needs no memory.
    absl::Status status = searches ? EnsureTensors() : absl::OkStatus();
    std::optional<cudnn::ConvPointers> tensors;
    if (searches && status.ok()) tensors = tensors_->pointers(0);
    status.Update(search::ListLegacyAlgorithms(problem_, legacy, tensors, workspace_limit_, sink));
    return status;
  }

  // Makes copies of the tensors, and the workspace large enough, for as many copies as
  // candidates of this many runs and these workspaces can use, all of them alike.
  absl::Status MakeCopies(int most_runs, const std::set<int64_t, std::greater<>>& workspaces) {
    const int64_t largest = workspaces.empty() ? 0 : *workspaces.begin();
    const auto needed = [&](int copies) {
      const int64_t workspace = std::max(workspace_.bytes(), largest * copies);
      return device::WholePages(workspace) + (copies - 1) * tensors_->copy_bytes();
    };
    copies_ = std::min(most_runs, most_copies_);
    while (copies_ > 1 && needed(copies_) > workspace_limit_) --copies_;
    const int wanted = copies_;
    // Less memory may be free than at the start. Then there are fewer copies, or candidates with
    // the largest workspaces are not launched (see Launch), and the others are timed.
    std::set<int64_t, std::greater<>> sizes = workspaces;
    for (int copies = 2; copies <= wanted; ++copies) sizes.insert(largest * copies);
    for (const int64_t size : sizes) {
      if (workspace_.allocated() && size <= workspace_.bytes()) {
        break;
      }
      for (auto& [id, prepared] : prepared_) {
        prepared.graphs.clear();
        prepared.warm_copies = 0;
      }
      tensors_->RemoveCopies();
      workspace_ = device::GuardedBuffer();
      absl::StatusOr<device::GuardedBuffer> buffer = device::GuardedBuffer::Allocate(size);
      if (buffer.ok()) {
        workspace_ = *std::move(buffer);
      } else if (!absl::IsResourceExhausted(buffer.status())) {
        return buffer.status();
      }
    }
    for (const int64_t size : workspaces) {
      if (size == 0 || size > workspace_.bytes()) continue;
      copies_ = static_cast<int>(std::min<int64_t>(copies_, workspace_.bytes() / size));
    }
    RETURN_IF_ERROR(tensors_->AddCopies(copies_));
    copies_ = std::min(copies_, tensors_->copies());
    if (copies_ < wanted) most_copies_ = copies_;
    return absl::OkStatus();
  }

  void* Workspace(int64_t bytes, int copy) const {
    return static_cast<char*>(workspace_.data()) + Aligned(bytes) * copy;
  }

  absl::Status Launch(const Prepared& prepared, int copy = 0) {
    if (!FitsWorkspace(prepared)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("its workspace of ", prepared.workspace_bytes, " bytes does not fit"));
    }
    if (prepared.plan.has_value()) {
      return cudnn::ToStatus(
          cudnnBackendExecute(resources_.handle, prepared.plan->descriptor.get(),
                              prepared.variant_packs[static_cast<size_t>(copy)].get()),
          "execute");
    }
    ASSIGN_OR_RETURN(cudnn::LegacyConvolution * legacy, Legacy());
    return legacy->Launch(std::get<LegacyAlgorithm>(prepared.id), tensors_->pointers(copy),
                          Workspace(prepared.workspace_bytes, copy), prepared.workspace_bytes);
  }

  // Launches it on copies that it has not run on, and waits: what CUDA does late for new
  // memory would wait for the blocking kernel. The first launch after BeginMeasure() is no
  // sample's, either, since the GPU has waited for the host.
  absl::Status WarmUp(int copies, Prepared* prepared) {
    if (awake_ && prepared->warm_copies >= copies) return absl::OkStatus();
    for (int copy = awake_ ? prepared->warm_copies : 0; copy < copies; ++copy) {
      RETURN_IF_ERROR(Launch(*prepared, copy));
    }
    RETURN_IF_ERROR(cudnn::ToStatus(cudaStreamSynchronize(resources_.stream), "warm up"));
    prepared->warm_copies = std::max(prepared->warm_copies, copies);
    awake_ = true;
    return absl::OkStatus();
  }

  // Launches a candidate that has run, if there is one, else this one.
  absl::Status LaunchSound(const Prepared& prepared) {
    return Launch(sound_ != nullptr ? *sound_ : prepared);
  }

  absl::StatusOr<TimedRun> Sample(const worker::v1::Measure& how, Prepared* prepared) {
    const bool replays = how.launch() == convtune::v1::LAUNCH_MODE_GRAPH_CAPTURE;
    if (replays && !resources_.captures) return absl::FailedPreconditionError(kNoCaptures);
    timing::TimedWork work;
    work.cache_state = static_cast<CacheState>(how.cache_state());
    work.copies = work.cache_state == CacheState::kHot ? 1 : copies_;
    RETURN_IF_ERROR(WarmUp(work.copies, prepared));
    if (replays) {
      RETURN_IF_ERROR(CaptureCopies(std::min(work.copies, most_replay_copies_), prepared));
      work.copies = std::min(work.copies, most_replay_copies_);
    }
    for (int copy = 0; copy < work.copies; ++copy) {
      work.inputs.push_back(tensors_->fresh_input(copy));
    }
    work.expected = prepared->expected;
    if (how.sample_us() > 0) work.sample_us = how.sample_us();
    bool& gave_up = replays ? prepared->replay_gave_up : prepared->gave_up;
    timing::BlockingPolicy& policy = replays ? blocked_replays_ : blocked_launches_;
    const std::string engine = EngineOf(prepared->id);
    work.block_attempts = resources_.blocking_kernels ? policy.Attempts(engine, gave_up) : 0;
    work.launch = [&](int copy) -> absl::Status {
      return replays ? prepared->graphs[static_cast<size_t>(copy)].Launch(resources_.stream)
                     : Launch(*prepared, copy);
    };
    ASSIGN_OR_RETURN(const TimedRun run, timing::TakeSample(work, resources_.timed_stream));
    prepared->expected = run;
    if (work.block_attempts > 0) {
      policy.Took(engine, run.blocked);
      gave_up = !run.blocked;
    }
    return run;
  }

  absl::StatusOr<worker::v1::Checked> RunAndLook(Prepared* prepared) {
    if (!check_.has_value()) {
      ASSIGN_OR_RETURN(check_, verify::OutputCheck::Create(problem_, host_->Reference(),
                                                           tensors_->output_elements(),
                                                           resources_.kernels, resources_.stream));
    }
    const device::GuardedBuffer& output = tensors_->output();
    RETURN_IF_ERROR(output.Prepare(output.bytes(), resources_.stream));
    if (FitsWorkspace(*prepared)) {
      RETURN_IF_ERROR(workspace_.Prepare(prepared->workspace_bytes, resources_.stream));
    }
    timing::TimedWork work;
    work.inputs = {tensors_->fresh_input(0)};
    work.launch = [&](int) { return Launch(*prepared); };
    work.block_attempts = 0;  // code may be loaded, and memory allocated
    worker::v1::Checked checked;
    const auto run = [&] { return timing::TakeSample(work, resources_.timed_stream); };
    ASSIGN_OR_RETURN(const TimedRun first, cudnn::TryTwice(run, recover_, &retried_runs_));
    checked.set_first_gpu_us(first.gpu_us);
    checked.set_first_host_us(first.host_us);
    prepared->warm_copies = std::max(prepared->warm_copies, 1);
    awake_ = true;
    ASSIGN_OR_RETURN(*checked.mutable_out_of_bounds(), WrittenOutOfBounds(*prepared));
    ASSIGN_OR_RETURN(const verify::Comparison looked, check_->Look(output.data()));
    if (looked.error) checked.set_error(*looked.error);
    checked.set_magnitude(looked.magnitude);
    checked.set_nonfinite(looked.nonfinite);
    double& best_us = best_us_[ApiOf(prepared->id)];
    checked.set_hopeless(timing::IsHopeless(first, best_us));
    TimedRun second = first;
    // The first one's time may be that of loading code.
    if (!checked.hopeless()) {
      ASSIGN_OR_RETURN(second, cudnn::TryTwice(run, recover_, &retried_runs_));
    }
    checked.set_gpu_us(second.gpu_us);
    checked.set_host_us(second.host_us);
    if (checked.hopeless()) return checked;
    if (best_us == 0 || second.gpu_us < best_us) best_us = second.gpu_us;
    prepared->expected = second;
    if (!resources_.captures) {
      checked.set_capture_refusal(kNoCaptures);
      return checked;
    }
    const absl::Status captured = TryCapture(looked, prepared);
    checked.set_capture(captured.ok() ? convtune::v1::CAPTURE_SUPPORT_YES
                                      : convtune::v1::CAPTURE_SUPPORT_NO);
    checked.set_capture_refusal(Utf8(std::string(captured.message())));
    return checked;
  }

  absl::StatusOr<std::string> WrittenOutOfBounds(const Prepared& prepared) const {
    std::vector<std::string> damages;
    const device::GuardedBuffer& output = tensors_->output();
    ASSIGN_OR_RETURN(std::string damage, output.Damage(output.bytes(), resources_.stream));
    if (!damage.empty()) {
      damages.push_back(absl::StrCat("output: ", damage));
    }
    ASSIGN_OR_RETURN(damage, workspace_.Damage(prepared.workspace_bytes, resources_.stream));
    if (!damage.empty()) {
      damages.push_back(absl::StrCat("workspace: ", damage));
    }
    return absl::StrJoin(damages, "; ");
  }

  // Captures it, and sees whether a replay computes what `eager` was. Errors
  // say why it is not to be captured.
  absl::Status TryCapture(const verify::Comparison& eager, Prepared* prepared) {
    const device::GuardedBuffer& output = tensors_->output();
    prepared->graphs.clear();
    absl::Status status = output.Prepare(output.bytes(), resources_.stream);
    if (status.ok()) {
      status = CaptureAndReplay(prepared);
    }
    if (status.ok()) {
      const absl::StatusOr<verify::Comparison> replayed = check_->Look(output.data());
      status = replayed.status();
      const std::string difference =
          status.ok() ? verify::Disagreement(problem_.output_type(), eager, *replayed) : "";
      if (!difference.empty()) status = absl::DataLossError(difference);
    }
    if (!status.ok()) {
      recover_();
      prepared->graphs.clear();
    }
    return status;
  }

  // Has a graph of each copy made, or of fewer where a further copy's capture fails: then
  // replays of all candidates use no more.
  absl::Status CaptureCopies(int copies, Prepared* prepared) {
    while (static_cast<int>(prepared->graphs.size()) < copies) {
      absl::Status captured = CaptureAndReplay(prepared);
      if (captured.ok()) continue;
      if (prepared->graphs.empty()) return captured;
      most_replay_copies_ = static_cast<int>(prepared->graphs.size());
      break;
    }
    return absl::OkStatus();
  }

  // Makes a graph of the first copy that has none, and replays it once.
  absl::Status CaptureAndReplay(Prepared* prepared) {
    const auto copy = static_cast<int>(prepared->graphs.size());
    const auto launch = [&] { return Launch(*prepared, copy); };
    const auto capture_and_replay = [&]() -> absl::Status {
      ASSIGN_OR_RETURN(device::CapturedGraph graph,
                       device::CapturedGraph::Capture(resources_.stream, launch));
      RETURN_IF_ERROR(graph.Launch(resources_.stream));
      RETURN_IF_ERROR(cudnn::ToStatus(cudaStreamSynchronize(resources_.stream), "replay a graph"));
      prepared->graphs.push_back(std::move(graph));
      return absl::OkStatus();
    };
    return cudnn::OrThrowAway(capture_and_replay(), launch, recover_);
  }

  const ConvProblem problem_;
  const cudnn::OperationGraph operation_;
  const GpuResources resources_;
  const int64_t workspace_limit_;
  const verify::InputValues inputs_;
  const std::function<void()> recover_ = [this] { cudnn::Recover(resources_.stream); };
  std::unique_ptr<cudnn::LegacyConvolution> legacy_;
  std::unique_ptr<verify::ReferenceData> host_;
  std::optional<ProblemTensors> tensors_;
  std::optional<verify::OutputCheck> check_;
  device::GuardedBuffer workspace_;
  // Copies of all memory that a candidate touches, for all candidates of a measure request:
  // they are timed alike.
  int copies_ = 1;
  // Copies that there was memory for, and of which replays could be captured.
  int most_copies_ = timing::kMostRuns;
  int most_replay_copies_ = timing::kMostRuns;
  bool awake_ = false;  // something ran since BeginMeasure()
  // The best time of what was checked, by API, so that no API's first is hopeless.
  std::map<Api, double> best_us_;
  std::map<CandidateId, Prepared> prepared_;
  timing::BlockingPolicy blocked_launches_;
  timing::BlockingPolicy blocked_replays_;
  int retried_runs_ = 0;
  const Prepared* sound_ = nullptr;  // the last that ran, with the current workspace
};

absl::StatusOr<std::unique_ptr<GpuProblem>> MakeProblem(const ConvProblem& problem,
                                                        const GpuResources& resources,
                                                        int64_t memory_budget_bytes,
                                                        verify::InputValues inputs) {
  const int64_t needed = problem.TensorBytes() + kCheckBytes;
  if (memory_budget_bytes < needed) {
    return absl::ResourceExhaustedError(
        absl::StrCat("memory_budget_bytes: the tensors and the check of the output need ", needed,
                     " of ", memory_budget_bytes));
  }
  cudnn::CudnnTarget target;
  target.handle = resources.handle;
  ASSIGN_OR_RETURN(cudnn::OperationGraph operation, cudnn::OperationGraph::Create(problem, target));
  return std::make_unique<GpuProblem>(problem, std::move(operation), resources,
                                      memory_budget_bytes - needed, inputs);
}

}  // namespace

absl::StatusOr<std::unique_ptr<BackendProblem>> OpenGpuProblem(const ConvProblem& problem,
                                                               const GpuResources& resources,
                                                               int64_t memory_budget_bytes) {
  return MakeProblem(problem, resources, memory_budget_bytes, verify::InputValues::kAsInNetworks);
}

absl::StatusOr<worker::v1::Checked> RunAfterSpoiltCapture(const GpuResources& resources) {
  ASSIGN_OR_RETURN(const ConvProblem problem, ConvProblem::Parse(verify::kKnownProblem));
  ASSIGN_OR_RETURN(const int64_t free_bytes, device::FreeDeviceMemory());
  ASSIGN_OR_RETURN(
      const std::unique_ptr<GpuProblem> known,
      MakeProblem(problem, resources, free_bytes / 2, verify::InputValues::kSmallIntegers));
  ASSIGN_OR_RETURN(const CandidateId stock,
                   PrepareFirst(worker::v1::LISTING_FIRST_CONFIGS, known.get()));
  RETURN_IF_ERROR(known->BeginMeasure({stock}));
  if (known->SpoilCapture(stock).ok()) {
    return absl::FailedPreconditionError("a call that a capture forbids did not make it fail");
  }
  return known->Check(stock);
}

}  // namespace convtune::worker
