#include "tests/simgpu/cudnn/execution.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/simgpu/cudnn/cost_model.h"
#include "tests/simgpu/cudnn/element.h"
#include "tests/simgpu/cudnn/outputs.h"
#include "tests/simgpu/runtime/gpu.h"

namespace convtune::simgpu {
namespace {

constexpr double kNoise = 0.01;
constexpr double kSlow = 1000;
constexpr int64_t kWorkspacePieces = 64, kWorkspacePiece = 64;
constexpr int kAnything = 0x3C;  // a number in each type

std::string& ErrorText() {
  thread_local std::string text;
  return text;
}

Outputs& AllOutputs() {
  static auto& outputs = *new Outputs();
  return outputs;
}

bool Has(const Candidate& candidate, NumericalNote note) {
  return (candidate.numerical_notes & NoteBit(note)) != 0;
}

Rounding RoundingOf(const Candidate& candidate) {
  static uint64_t runs = 0;
  Rounding rounding;
  rounding.seed = HashOf(candidate.engine, Gpu::Get().settings().seed);
  if (Has(candidate, NumericalNote::kNondeterministic)) rounding.seed += ++runs;
  const bool transforms =
      Has(candidate, NumericalNote::kFft) || Has(candidate, NumericalNote::kWinograd);
  // A transform's error is some of the type's steps where the type is as fine as the sums.
  if (transforms && candidate.program.output.tensor.type == DataType::kF32) rounding.ulps = 8;
  return rounding;
}

// One run of a call on the GPU.
class Run {
 public:
  Run(const Candidate& candidate, const Call& call, std::optional<Action> fault)
      : call_(call), candidate_(candidate), fault_(fault) {}

  WorkEnd Go(const WorkStart& start) {
    if (start.replay) {
      Site site = candidate_.site;
      site["launch"] = "replay";
      if (const std::optional<Action> fault = FaultAt(site)) fault_ = fault;
      if (fault_ == Action::kHang) Hang();
      if (fault_ == Action::kAbort) std::abort();
    }
    if (fault_ == Action::kSticky) return {start.ns, cudaErrorLaunchFailure};
    const Operand& output = candidate_.program.output;
    std::vector<Span> spans;
    for (const Operand& input : candidate_.program.Inputs()) spans.push_back(SpanOf(input));
    if (candidate_.workspace_bytes > 0) {
      spans.push_back({call_.workspace, candidate_.workspace_bytes});
    }
    spans.push_back(SpanOf(output));
    Gpu& gpu = Gpu::Get();
    for (const Span& span : spans) {
      if (!gpu.memory().Contains(span.data, span.bytes)) {
        return {start.ns, cudaErrorIllegalAddress};
      }
    }
    WriteWorkspace();
    WriteOutput();
    if (!DoDamage()) return {start.ns, cudaErrorIllegalAddress};
    Traffic traffic;
    for (const Span& span : spans) {
      const int64_t missed = gpu.l2().Touch(span);
      traffic.missed_bytes += missed;
      traffic.hit_bytes += span.bytes - missed;
    }
    double us = MicrosecondsOf(candidate_.program, Has(candidate_, NumericalNote::kTensorCore),
                               traffic, candidate_.slowness, gpu.profile());
    us *= gpu.Noise(candidate_.config, kNoise) * gpu.profile().sm_clock_mhz / gpu.SmClockMhz();
    if (fault_ == Action::kSlow) us *= kSlow;
    return {start.ns + static_cast<int64_t>(us * 1000), cudaSuccess};
  }

 private:
  Span SpanOf(const Operand& operand) const {
    return {call_.data.at(operand.uid), operand.tensor.Bytes()};
  }

  // All over, so that what is kept there does not last.
  void WriteWorkspace() const {
    auto* const data = static_cast<char*>(call_.workspace);
    const int64_t bytes = candidate_.workspace_bytes;
    const int64_t piece = std::min(bytes, kWorkspacePiece);
    for (int64_t i = 0; i < kWorkspacePieces && piece > 0; ++i) {
      std::memset(data + (bytes - piece) * i / (kWorkspacePieces - 1), 0x5A,
                  static_cast<size_t>(piece));
    }
  }

  void WriteOutput() const {
    const Rounding rounding = RoundingOf(candidate_);
    if (fault_ != Action::kTf32) {
      AllOutputs().Write(candidate_.program, candidate_.text, call_.data, rounding);
      return;
    }
    Program program = candidate_.program;
    if (program.convolution.x.type != DataType::kF32) Refuse("faults: tf32: inputs are not f32");
    program.convolution.tf32 = true;
    AllOutputs().Write(program, program.Text(), call_.data, rounding);
  }

  // False where the memory behind is nobody's.
  bool DoDamage() const {
    const Tensor& tensor = candidate_.program.output.tensor;
    auto* const output = static_cast<char*>(call_.data.at(candidate_.program.output.uid));
    if (fault_ == Action::kWrong || fault_ == Action::kNan) {
      // The first element, which is at an end: the reference compares those above all.
      const double value = DecodeElement(tensor.type, output);
      const double wrong = value + std::max(64.0, 4 * std::abs(value));
      if (fault_ == Action::kWrong) {
        EncodeElement(tensor.type, wrong, output);
      } else {
        std::memset(output, 0xFF, static_cast<size_t>(SizeOf(tensor.type)));
      }
      AllOutputs().Forget(output);
    }
    if (fault_ == Action::kBeyondOutput) return Flip(output + tensor.Bytes());
    if (fault_ == Action::kBeyondWorkspace) {
      if (call_.workspace == nullptr) Refuse("faults: beyond_workspace: there is no workspace");
      return Flip(static_cast<char*>(call_.workspace) + candidate_.workspace_bytes);
    }
    return true;
  }

  static bool Flip(char* byte) {
    if (!Gpu::Get().memory().Contains(byte, 1)) return false;
    *byte = static_cast<char>(*byte ^ 0x55);
    return true;
  }

  const Call& call_;
  const Candidate& candidate_;
  std::optional<Action> fault_;
};

// `took_ns` is set when it ran.
WorkPtr MakeWork(const Plan& plan, const Call& call, std::optional<Action> fault, bool captured,
                 std::shared_ptr<int64_t> took_ns) {
  auto work = std::make_shared<Work>();
  work->run = [keep = captured ? nullptr : plan.candidate,
               candidate = std::weak_ptr(plan.candidate), call, fault,
               took_ns = std::move(took_ns)](const WorkStart& start) -> WorkEnd {
    const auto alive = candidate.lock();
    if (alive == nullptr) return {start.ns, cudaErrorIllegalAddress};
    const WorkEnd end = Run(*alive, call, fault).Go(start);
    if (took_ns != nullptr) *took_ns = end.ns - start.ns;
    return end;
  };
  return work;
}

cudnnStatus_t Failed(cudaError_t error, std::string_view what) {
  return Error(CUDNN_STATUS_EXECUTION_FAILED,
               absl::StrCat(std::string(what), ": ", cudaGetErrorName(error)));
}

// What a fault does to the call itself; CUDNN_STATUS_SUCCESS if the call goes on.
cudnnStatus_t DoToCall(Action fault, cudaStream_t stream, Library* library) {
  Gpu& gpu = Gpu::Get();
  cudaError_t error = cudaSuccess;
  switch (fault) {
    case Action::kNotSupported:
      return Error(CUDNN_STATUS_NOT_SUPPORTED, "not supported at run");
    case Action::kFail:
      return Error(CUDNN_STATUS_EXECUTION_FAILED, "failed");
    case Action::kLeaveCaptureOpen:
      // On the caller's stream; where that is captured already, on one of cuDNN's own.
      error = gpu.BeginCapture(gpu.IsCapturing(stream) ? gpu.CreateStream() : stream,
                               cudaStreamCaptureModeThreadLocal);
      break;
    case Action::kFork:
      gpu.ForkCapture(stream);
      break;
    case Action::kSynchronize:
      error = gpu.Wait(stream);
      break;
    case Action::kAllocate:
      error = gpu.WaitForIdle();
      break;
    case Action::kHang:
      Hang();
    case Action::kAbort:
      std::abort();
    default:
      return CUDNN_STATUS_SUCCESS;
  }
  if (error == cudaSuccess) return CUDNN_STATUS_SUCCESS;
  library->last_error = error;
  return Failed(error, "a call in the launch");
}

// What is wrong with a call's pointers.
cudnnStatus_t Check(const Candidate& candidate, const Call& call) {
  std::vector<Operand> needed = candidate.program.Inputs();
  needed.push_back(candidate.program.output);
  for (const Operand& operand : needed) {
    const auto found = call.data.find(operand.uid);
    if (found == call.data.end() || found->second == nullptr) {
      return Error(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a tensor has no memory");
    }
    if (reinterpret_cast<uintptr_t>(found->second) % static_cast<uint64_t>(operand.alignment) != 0)
      return Error(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "a tensor is not aligned");
  }
  if (candidate.workspace_bytes > 0 && call.workspace == nullptr) {
    return Error(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the workspace is null");
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t TakeEarlierError(Library* library) {
  const cudaError_t error = std::exchange(library->last_error, cudaSuccess);
  return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : Failed(error, "an earlier launch");
}

cudnnStatus_t LoadCode(Library* library, bool* loaded) {
  const std::optional<Action> fault = FaultAt({{"load_code", ""}});
  if (fault == Action::kHang) Hang();
  if (fault == Action::kFail) return Error(CUDNN_STATUS_EXECUTION_FAILED, "load code: failed");
  const cudaError_t error = Gpu::Get().WaitForIdle();
  if (error != cudaSuccess) {
    library->last_error = error;
    return Failed(error, "load code");
  }
  *loaded = true;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

Candidate::Candidate(Program of, Site where, uint32_t notes, int64_t bytes)
    : program(std::move(of)),
      site(std::move(where)),
      engine(site.at(site.contains("legacy") ? "legacy" : "engine")),
      config(site.at(site.contains("legacy") ? "legacy" : "config")),
      numerical_notes(notes),
      workspace_bytes(bytes) {
  site["operation"] = std::string(Name(program.convolution.operation));
  program.convolution.tf32 = program.convolution.x.type == DataType::kF32 &&
                             (notes & (NoteBit(NumericalNote::kTensorCore) |
                                       NoteBit(NumericalNote::kDownConvertInputs))) != 0;
  text = program.Text();
  slowness = SlownessOf(program, engine, config, Gpu::Get().settings().seed);
}

cudnnStatus_t Execute(Plan* plan, const Call& call, cudaStream_t stream, Library* library) {
  cudnnStatus_t status = Check(*plan->candidate, call);
  if (status == CUDNN_STATUS_SUCCESS) status = TakeEarlierError(library);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  Site site = plan->candidate->site;
  const bool captured = Gpu::Get().IsCapturing(stream);
  site["launch"] = captured ? "capture" : "eager";
  const std::optional<Action> fault = FaultAt(site);
  if (fault.has_value()) status = DoToCall(*fault, stream, library);
  if (status == CUDNN_STATUS_SUCCESS && !plan->loaded) status = LoadCode(library, &plan->loaded);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  const cudaError_t error = Gpu::Get().Put(stream, MakeWork(*plan, call, fault, captured, nullptr));
  if (error == cudaSuccess) return CUDNN_STATUS_SUCCESS;
  library->last_error = error;
  return Failed(error, "launch");
}

cudnnStatus_t RunAndTime(const Plan& plan, const Call& call, cudaStream_t stream, Library* library,
                         double* us) {
  cudnnStatus_t status = Check(*plan.candidate, call);
  if (status == CUDNN_STATUS_SUCCESS) status = TakeEarlierError(library);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  Gpu& gpu = Gpu::Get();
  const auto took_ns = std::make_shared<int64_t>(0);
  cudaError_t error = gpu.WaitForIdle();
  if (error == cudaSuccess)
    error = gpu.Put(stream, MakeWork(plan, call, std::nullopt, false, took_ns));
  if (error == cudaSuccess) error = gpu.Wait(stream);
  if (error != cudaSuccess) return Failed(error, "find");
  *us = static_cast<double>(*took_ns) / 1000;
  const Operand& output = plan.candidate->program.output;
  std::memset(call.data.at(output.uid), kAnything, static_cast<size_t>(output.tensor.Bytes()));
  AllOutputs().Forget(call.data.at(output.uid));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Error(cudnnStatus_t status, std::string_view text) {
  absl::StrAppend(&ErrorText(), "simulated: ", std::string(text), "\n");
  return status;
}

std::string TakeErrorText() { return std::exchange(ErrorText(), ""); }

void Expect(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS)
    Refuse(std::string(what) + ": " + cudnnGetErrorString(status));
}

}  // namespace convtune::simgpu
