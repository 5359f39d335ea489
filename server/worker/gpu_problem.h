// A GpuProblem lists, builds, checks and times a problem's candidates on a GPU.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "server/worker/backend.h"
#include "server/worker/cudnn/cudnn_status.h"
#include "server/worker/cudnn/graph_builder.h"
#include "server/worker/cudnn/legacy_convolution.h"
#include "server/worker/device/cuda_stream.h"
#include "server/worker/device/device_memory.h"
#include "server/worker/device/kernels.h"
#include "server/worker/search/listing_sink.h"
#include "server/worker/timing/timer.h"
#include "server/worker/verify/output_check.h"
#include "server/worker/verify/problem_tensors.h"
#include "server/worker/verify/reference_data.h"

namespace convtune::worker {

// GpuResources are what problems share on a GPU. `stream` is the handle's and the timer's.
struct GpuResources {
  cudnnHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
  timing::Timer* timer = nullptr;
  device::Kernels* kernels = nullptr;
  bool blocking_kernels = true;  // they work
  bool captures = true;          // false: nothing is captured
};

// Tensors are made when something is first run. After a failure that it returns,
// Backend::Recover is to be called.
class GpuProblem : public BackendProblem {
 public:
  // `resources` outlive the problem. RESOURCE_EXHAUSTED if the tensors, and
  // what is needed to check results, alone exceed the budget; else cuDNN's
  // errors. `inputs`: what the tensors hold.
  static absl::StatusOr<std::unique_ptr<GpuProblem>> Create(
      const ConvProblem& problem, const GpuResources& resources, int64_t memory_budget_bytes,
      verify::InputValues inputs = verify::InputValues::kAsInNetworks);

  absl::StatusOr<worker::v1::Outcome> List(const worker::v1::OpenProblem& request,
                                           SteadyTime deadline, const OnListed& on_listed) override;
  absl::StatusOr<worker::v1::Prepared> Prepare(const CandidateId& id) override;
  absl::Status BeginMeasure(const std::vector<CandidateId>& ids) override;
  absl::StatusOr<worker::v1::Checked> Check(const CandidateId& id) override;
  absl::StatusOr<TimedRun> Run(const CandidateId& id, const RunMode& mode) override;
  void DescribeRuns(Conditions* conditions) const override;

  // Captures a prepared candidate with a call that no capture allows in between,
  // and gives what capturing failed with; OK if it did not fail. The stream can
  // be used after it as after every capture that fails. Between BeginMeasure and
  // Check.
  absl::Status SpoilCapture(const CandidateId& id);

 private:
  // The kept state of a prepared candidate; legacy algorithms have no plan.
  struct Prepared {
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

  GpuProblem(const ConvProblem& problem, cudnn::OperationGraph operation,
             const GpuResources& resources, int64_t workspace_limit, verify::InputValues inputs)
      : problem_(problem),
        operation_(std::move(operation)),
        resources_(resources),
        workspace_limit_(workspace_limit),
        inputs_(inputs) {}

  // Fails with the reason where the legacy API cannot express the problem.
  absl::StatusOr<cudnn::LegacyConvolution*> Legacy();
  void EnsureHostWork();
  absl::Status EnsureTensors();
  absl::StatusOr<cudnn::Descriptor> MakeVariantPack(int64_t workspace_bytes, int copy);
  absl::Status ListLegacy(worker::v1::Listing depth, search::ListingSink* sink);
  absl::StatusOr<Prepared*> Find(const CandidateId& id);
  bool FitsWorkspace(const Prepared& prepared) const {
    return workspace_.allocated() && prepared.workspace_bytes <= workspace_.bytes();
  }
  // Makes copies of the tensors, and the workspace large enough, for as many copies as
  // candidates of this many runs and these workspaces can use, all of them alike.
  absl::Status MakeCopies(int most_runs, const std::set<int64_t, std::greater<>>& workspaces);
  void* Workspace(int64_t bytes, int copy) const;
  absl::Status Launch(const CandidateId& id, const Prepared& prepared, int copy = 0);
  // Launches it on copies that it has not run on, and waits: what CUDA does late for new
  // memory would wait for the blocking kernel. The first launch after BeginMeasure() is no
  // sample's, either, since the GPU has waited for the host.
  absl::Status WarmUp(const CandidateId& id, int copies, Prepared* prepared);
  // Launches a candidate that has run, if there is one, else this one.
  absl::Status LaunchSound(const CandidateId& id);
  absl::StatusOr<TimedRun> Sample(const CandidateId& id, const RunMode& mode, Prepared* prepared);
  absl::StatusOr<worker::v1::Checked> RunAndLook(const CandidateId& id, Prepared* prepared);
  absl::StatusOr<std::string> WrittenOutOfBounds(const Prepared& prepared) const;
  // Captures it, and sees whether a replay computes what `eager` was. Errors
  // say why it is not to be captured.
  absl::Status TryCapture(const CandidateId& id, const verify::Comparison& eager,
                          Prepared* prepared);
  // Has a graph of each copy made, or of fewer where a further copy's capture fails: then
  // replays of all candidates use no more.
  absl::Status CaptureCopies(const CandidateId& id, int copies, Prepared* prepared);
  // Makes a graph of the first copy that has none, and replays it once.
  absl::Status CaptureAndReplay(const CandidateId& id, Prepared* prepared);

  const ConvProblem problem_;
  const cudnn::OperationGraph operation_;
  const GpuResources resources_;
  const int64_t workspace_limit_;
  const verify::InputValues inputs_;
  const std::function<void()> recover_ = [this] { cudnn::Recover(resources_.stream); };
  std::unique_ptr<cudnn::LegacyConvolution> legacy_;
  std::unique_ptr<verify::ReferenceData> host_;
  std::optional<verify::ProblemTensors> tensors_;
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
  std::optional<CandidateId> sound_;  // the last that ran, with the current workspace
};

}  // namespace convtune::worker
