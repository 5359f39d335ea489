// The worker's own descriptors, plans and legacy convolutions, executed on the simulated GPU.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "proto/base/clock.h"
#include "server/worker/cudnn/graph_builder.h"
#include "server/worker/cudnn/legacy_convolution.h"
#include "server/worker/cudnn/owned.h"
#include "server/worker/device/device_profile.h"
#include "server/worker/search/graph_listing.h"
#include "tests/simgpu/cudnn/cost_model.h"
#include "tests/simgpu/cudnn/element.h"
#include "tests/simgpu/cudnn/legacy_algorithms.h"
#include "tests/simgpu/cudnn/program.h"
#include "tests/simgpu/runtime/gpu.h"
#include "tests/unit/simgpu/another_process.h"
#include "tests/unit/simgpu/fault_script.h"
#include "tests/unit/simgpu/naive_convolution.h"

namespace convtune::simgpu {
namespace {

using worker::cudnn::Descriptor;

std::array<int64_t, 5> Five(const std::vector<int64_t>& values, int64_t fill) {
  std::array<int64_t, 5> five = {values[0], values[1], fill, 0, 0};
  std::copy(values.begin() + 2, values.end(), five.end() - static_cast<int>(values.size() - 2));
  return five;
}

std::array<int64_t, 3> Three(const std::vector<int64_t>& values, int64_t fill) {
  std::array<int64_t, 3> three = {fill, fill, fill};
  std::copy(values.begin(), values.end(), three.end() - static_cast<int>(values.size()));
  return three;
}

Convolution ToConvolution(const ConvProblem& problem) {
  Convolution conv;
  conv.operation = problem.operation();
  const auto type = [&](Operation writer) {
    return problem.operation() != writer ? problem.data_type()
           : problem.epilogue().empty()  ? problem.output_type()
                                         : problem.intermediate_type();
  };
  conv.x = {type(Operation::kBwdData), Five(problem.x_dims(), 1), Five(problem.x_strides(), 0)};
  conv.w = {type(Operation::kBwdFilter), Five(problem.w_dims(), 1), Five(problem.w_strides(), 0)};
  conv.y = {type(Operation::kFwd), Five(problem.y_dims(), 1), Five(problem.y_strides(), 0)};
  conv.pad = Three(problem.pad_low(), 0);
  conv.stride = Three(problem.strides(), 1);
  conv.dilation = Three(problem.dilations(), 1);
  conv.groups = problem.groups();
  conv.compute = problem.compute_type();
  conv.flipped = problem.mode() == ConvolutionMode::kConvolution;
  return conv;
}

// What a heuristic mode lists, best first.
std::vector<convtune::Candidate> Listed(const worker::cudnn::OperationGraph& graph,
                                        cudnnBackendHeurMode_t mode) {
  auto list = worker::search::AskHeuristics(graph, mode, SteadyTime::InfiniteFuture());
  EXPECT_TRUE(list.ok()) << list.status();
  return list->candidates;
}

// A problem's tensors on the GPU, of small integers, and the output that is expected.
class Problem {
 public:
  Problem(const std::string& text, bool small_integers = true)
      : problem(ConvProblem::Parse(text).value()), conv(ToConvolution(problem)) {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    cudnnHandle_t made = nullptr;
    EXPECT_EQ(cudnnCreate(&made), CUDNN_STATUS_SUCCESS);
    handle.reset(made);
    EXPECT_EQ(cudnnSetStream(made, stream), CUDNN_STATUS_SUCCESS);
    worker::cudnn::CudnnTarget target;
    target.handle = handle.get();
    graph.emplace(worker::cudnn::OperationGraph::Create(problem, target).value());
    std::mt19937 random(7);
    for (const Tensor& tensor : {conv.x, conv.w, conv.y}) {
      filled.emplace_back(tensor, small_integers, &random);
    }
    for (const worker::cudnn::GraphTensor& tensor : graph->tensors()) {
      using worker::cudnn::TensorRole;
      const int64_t bytes = tensor.elements * SizeOf(tensor.type);
      void* memory = nullptr;
      EXPECT_EQ(cudaMalloc(&memory, static_cast<size_t>(bytes + kBehind)), cudaSuccess);
      allocated.push_back(memory);
      uids.push_back(tensor.uid);
      if (tensor.role == TensorRole::kX) pointers.x = memory;
      if (tensor.role == TensorRole::kW) pointers.w = memory;
      if (tensor.role == TensorRole::kY) pointers.y = memory;
      if (tensor.output) {
        output = static_cast<char*>(memory);
        output_type = tensor.type;
        output_bytes = bytes;
      } else if (tensor.role == TensorRole::kX || tensor.role == TensorRole::kW ||
                 tensor.role == TensorRole::kY) {
        std::memcpy(memory, filled[static_cast<size_t>(tensor.role)].bytes.data(),
                    static_cast<size_t>(bytes));
      } else {
        for (int64_t i = 0; i < tensor.elements; ++i) {
          const double value = static_cast<double>(i % 5) - 2;
          EncodeElement(tensor.type, value, static_cast<char*>(memory) + i * SizeOf(tensor.type));
        }
      }
    }
    EXPECT_EQ(cudaMalloc(&workspace, kWorkspace), cudaSuccess);
  }

  ~Problem() {
    for (void* memory : allocated) cudaFree(memory);
    cudaFree(workspace);
  }

  using Visit =
      std::function<void(const convtune::Candidate&, const worker::cudnn::ExecutionPlan&)>;
  // Calls `visit` with each config that the heuristics list and that can be built.
  void ForEachPlan(const Visit& visit) {
    for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
      for (const convtune::Candidate& candidate : Listed(*graph, mode)) {
        const auto plan =
            worker::cudnn::ExecutionPlan::Create(*graph, std::get<EngineConfig>(candidate.id));
        if (plan.ok()) visit(candidate, *plan);
      }
    }
  }

  EngineConfig FirstConfig() {
    return std::get<EngineConfig>(Listed(*graph, CUDNN_HEUR_MODE_A).front().id);
  }
  worker::cudnn::ExecutionPlan FirstPlan() {
    return worker::cudnn::ExecutionPlan::Create(*graph, FirstConfig()).value();
  }
  // Of an engine that asks for a workspace.
  worker::cudnn::ExecutionPlan PlanWithWorkspace() {
    std::optional<EngineConfig> found;
    ForEachPlan([&](const convtune::Candidate& candidate, const auto& plan) {
      if (!found && plan.workspace_bytes > 0) found = std::get<EngineConfig>(candidate.id);
    });
    return worker::cudnn::ExecutionPlan::Create(*graph, found.value()).value();
  }

  std::unique_ptr<worker::cudnn::LegacyConvolution> Legacy() {
    return worker::cudnn::LegacyConvolution::Create(problem, handle.get()).value();
  }
  std::vector<worker::cudnn::FoundAlgorithm> Find(worker::cudnn::LegacyConvolution* legacy) {
    return legacy->Find(CUDNN_TENSOR_OP_MATH, pointers, workspace, kWorkspace).value();
  }

  // Without a workspace.
  Descriptor Pack() const {
    Descriptor pack = Descriptor::Create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR).value();
    pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, uids);
    pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, allocated);
    return pack;
  }

  cudnnStatus_t Execute(const worker::cudnn::ExecutionPlan& plan) {
    Descriptor pack = Pack();
    void* const work = plan.workspace_bytes > 0 ? workspace : nullptr;
    pack.Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, work);
    EXPECT_TRUE(pack.Finalize().ok());
    return cudnnBackendExecute(handle.get(), plan.descriptor.get(), pack.get());
  }

  // Executes it, and waits.
  void Run(const worker::cudnn::ExecutionPlan& plan) {
    ASSERT_EQ(Execute(plan), CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  }

  // Runs `captured` in a capture of the stream; what ending it gives.
  cudaError_t Capture(const std::function<void()>& captured, cudaGraph_t* made = nullptr) {
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    captured();
    cudaGraph_t ignored = nullptr;
    return cudaStreamEndCapture(stream, made == nullptr ? &ignored : made);
  }

  // The plan's execution, captured.
  cudaGraphExec_t Capture(const worker::cudnn::ExecutionPlan& plan) {
    cudaGraph_t captured = nullptr;
    cudaGraphExec_t exec = nullptr;
    EXPECT_EQ(Capture([&] { EXPECT_EQ(Execute(plan), CUDNN_STATUS_SUCCESS); }, &captured),
              cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiateWithFlags(&exec, captured, 0), cudaSuccess);
    cudaGraphDestroy(captured);
    return exec;
  }

  void Clear() { std::memset(output, 0xFF, static_cast<size_t>(output_bytes + kBehind)); }

  std::vector<double> Output() const {
    std::vector<double> values;
    for (int64_t at = 0; at < output_bytes; at += SizeOf(output_type)) {
      values.push_back(DecodeElement(output_type, output + at));
    }
    return values;
  }

  // By the definition, without an epilogue.
  const std::vector<double>& Expected() {
    if (expected.empty()) expected = Naive(conv, filled[0], filled[1], filled[2]);
    return expected;
  }

  // Largest difference from what is expected, in units of the largest value.
  double Difference() {
    const std::vector<double> values = Output();
    Expected();
    double largest = 0;
    double difference = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(expected[i]));
      // Written so that a NaN counts.
      if (!(std::abs(values[i] - expected[i]) <= difference)) {
        difference = std::abs(values[i] - expected[i]);
      }
    }
    return difference / largest;
  }

  static constexpr int64_t kBehind = 512;
  static constexpr size_t kWorkspace = 64 << 20;

  ConvProblem problem;
  Convolution conv;
  cudaStream_t stream = nullptr;
  worker::cudnn::Owned<cudnnHandle_t, cudnnDestroy> handle;
  std::optional<worker::cudnn::OperationGraph> graph;
  std::vector<void*> allocated;
  std::vector<int64_t> uids;
  worker::cudnn::ConvPointers pointers;
  void* workspace = nullptr;
  char* output = nullptr;
  DataType output_type = DataType::kF32;
  int64_t output_bytes = 0;
  std::vector<Filled> filled;  // x, w, y
  std::vector<double> expected;
};

constexpr char kHalf[] = "fwd,x=2x8x9x7,w=16x8x3x3,pad=1,stride=2,nhwc,f16";

class Known : public testing::TestWithParam<std::string> {};

TEST_P(Known, EachPlanIsReadAndExact) {
  Problem problem(GetParam());
  int ran = 0;
  problem.ForEachPlan([&](const convtune::Candidate& candidate, const auto& plan) {
    SCOPED_TRACE(ToText(candidate.id));
    problem.Clear();
    problem.Run(plan);
    EXPECT_EQ(problem.Difference(), 0);
    ++ran;
  });
  EXPECT_GT(ran, 0);
}

TEST_P(Known, EachLegacyAlgorithmIsExact) {
  Problem problem(GetParam());
  if (!worker::cudnn::LegacyObstacle(problem.problem).empty()) return;
  const auto legacy = problem.Legacy();
  const auto listed = legacy->Expected(CUDNN_TENSOR_OP_MATH).value();
  int ran = 0;
  for (const auto& entry : listed) {
    if (entry.status != CUDNN_STATUS_SUCCESS) continue;
    SCOPED_TRACE(ToText(entry.id));
    problem.Clear();
    ASSERT_TRUE(legacy
                    ->Launch(entry.id, problem.pointers, problem.workspace,
                             static_cast<int64_t>(Problem::kWorkspace))
                    .ok());
    ASSERT_EQ(cudaStreamSynchronize(problem.stream), cudaSuccess);
    EXPECT_EQ(problem.Difference(), 0);
    ++ran;
  }
  EXPECT_GT(ran, 0);
  const auto found = problem.Find(legacy.get());
  ASSERT_EQ(found.size(), listed.size());
  double last_us = 0;
  for (const auto& entry : found) {
    if (entry.status != CUDNN_STATUS_SUCCESS) continue;
    EXPECT_GE(entry.time_us, last_us) << "entries are in the order of their times";
    last_us = entry.time_us;
    --ran;
  }
  EXPECT_EQ(ran, 0) << "what is listed is found";
}

INSTANTIATE_TEST_SUITE_P(
    Problems, Known,
    testing::Values(kHalf, "bwd_data,x=2x8x9x7,w=16x8x3x3,pad=1,stride=2,nhwc,f16",
                    "bwd_filter,x=2x8x9x7,w=16x8x3x3,pad=1,stride=2,nhwc,f16",
                    "fwd,x=2x8x9x7,w=16x8x3x3,pad=1,stride=2,nchw,f32",
                    "bwd_data,x=2x8x9x7,w=16x8x3x3,pad=1,stride=2,nchw,f32",
                    "bwd_filter,x=2x8x9x7,w=16x8x3x3,pad=1,stride=2,nchw,f32",
                    "fwd,x=2x16x9x7,w=16x8x3x3,pad=1,groups=2,nhwc,bf16",
                    "fwd,x=2x16x9x7,w=16x16x3x3,pad=0:1,dilation=2,nhwc,f16,mode=conv",
                    "fwd,x=1x8x4x9x7,w=16x8x2x3x3,pad=1,nchw,f32",
                    "bwd_filter,x=1x8x4x9x7,w=16x8x2x3x3,pad=1,nchw,f64,mode=conv",
                    "fwd,x=2x16x9x7,w=16x16x3x3,pad=1,nhwc,i8,out=f32"));

std::string JsonOf(const worker::cudnn::ExecutionPlan& plan) {
  int64_t size = 0;
  std::string json(size_t{1} << 16, '\0');
  EXPECT_EQ(cudnnBackendGetAttribute(plan.descriptor.get(),
                                     CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                     static_cast<int64_t>(json.size()), &size, json.data()),
            CUDNN_STATUS_SUCCESS);
  return json.c_str();
}

// Real engines are asked for what a plan is; the problem says what it has to be.
TEST(Program, IsReadFromAPlan) {
  for (const std::string text :
       {"fwd,x=2x8x9x7,w=16x8x3x3,pad=1,stride=2,nhwc,f16",
        "bwd_data,x=2x8x9x7,w=16x4x3x3,pad=1,dilation=2,groups=2,nchw,f32",
        "bwd_filter,x=2x8x5x9x7,w=16x8x3x3x3,pad=0:1,nchw,f64,mode=conv"}) {
    SCOPED_TRACE(text);
    Problem problem(text);
    Program expected;
    expected.convolution = problem.conv;
    expected.output.tensor = problem.conv.Output();
    EXPECT_EQ(Program::Read(JsonOf(problem.FirstPlan()))->Text(), expected.Text());
  }
}

// The simulated GPU's properties do not take the place of those that a worker gives itself.
TEST(Program, AProfileKeepsItsOwnProperties) {
  const auto profile =
      worker::device::DeviceProfile::Load(CONVTUNE_PROFILES "/nvidia-l4.json").value();
  Descriptor properties = Descriptor::Create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR).value();
  properties.Set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, profile.properties_json);
  ASSERT_TRUE(properties.Finalize().ok());
  worker::cudnn::CudnnTarget target;
  target.device_properties = &properties;
  const auto graph =
      worker::cudnn::OperationGraph::Create(ConvProblem::Parse(kHalf).value(), target).value();
  const CandidateId of_profile = Listed(graph, CUDNN_HEUR_MODE_A).front().id;
  Problem problem(kHalf);
  EXPECT_NE(of_profile, CandidateId(problem.FirstConfig()));
  const auto plan =
      worker::cudnn::ExecutionPlan::Create(graph, std::get<EngineConfig>(of_profile)).value();
  EXPECT_NE(JsonOf(plan).find("\"deviceName\":\"NVIDIA L4\""), std::string::npos);
}

TEST(Program, WhatCannotBeComputedIsRefused) {
  EXPECT_EQ(Program::Read("{}").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Program::Read("no JSON").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(Program::Read(R"({"operationGraph": {"tensors": [], "nodes": [
      {"operation": "CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR"}]}})")
                   .ok());
}

TEST(Program, AnEpilogueIsAddedAndCut) {
  Problem problem(std::string(kHalf) + ",epilogue=add+bias+relu");
  // The residual has the output's strides, and the bias one value for each channel.
  const int64_t channels = problem.conv.y.dims[1];
  for (size_t i = 0; i < problem.Expected().size(); ++i) {
    const double residual = static_cast<double>(i % 5) - 2;
    const double bias = static_cast<double>(i % static_cast<size_t>(channels) % 5) - 2;
    problem.expected[i] = std::max(0.0, problem.expected[i] + residual + bias);
  }
  const auto plan = problem.FirstPlan();
  problem.Run(plan);
  EXPECT_EQ(problem.Difference(), 0);
}

TEST(Engines, DifferByRoundingOnly) {
  Problem problem("fwd,x=2x32x17x17,w=64x32x3x3,pad=1,nhwc,f16", /*small_integers=*/false);
  std::map<int64_t, std::vector<double>> outputs;
  problem.ForEachPlan([&](const convtune::Candidate& candidate, const auto& plan) {
    problem.Run(plan);
    EXPECT_LE(problem.Difference(), 0x1p-10);
    const auto [at, fresh] =
        outputs.emplace(std::get<EngineConfig>(candidate.id).engine_index, problem.Output());
    EXPECT_TRUE(fresh || at->second == problem.Output()) << "of one engine they are the same";
  });
  ASSERT_GT(outputs.size(), 1U);
  EXPECT_NE(outputs.begin()->second, outputs.rbegin()->second);
}

TEST(Engines, NewInputsGiveANewOutput) {
  Problem problem(kHalf);
  const auto plan = problem.FirstPlan();
  problem.Run(plan);
  std::memset(problem.pointers.x, 0, 1000);
  std::memset(static_cast<char*>(problem.pointers.x) + 1000, 0, 16);
  problem.Run(plan);
  EXPECT_EQ(problem.Output()[0], 0);
  EXPECT_NE(problem.Difference(), 0);
}

TEST(Engines, TensorCoresRoundF32) {
  Problem problem("fwd,x=2x32x9x9,w=32x32x3x3,pad=1,nhwc,f32", /*small_integers=*/false);
  std::map<bool, double> largest;
  problem.ForEachPlan([&](const convtune::Candidate& candidate, const auto& plan) {
    problem.Run(plan);
    double& difference = largest[candidate.has(NumericalNote::kTensorCore)];
    difference = std::max(difference, problem.Difference());
  });
  ASSERT_EQ(largest.size(), 2U);
  EXPECT_LT(largest[false], 1e-5);
  EXPECT_GT(largest[true], 1e-5);
  EXPECT_LT(largest[true], 1e-3);
}

TEST(Engines, AGraphReplaysThem) {
  Problem problem(kHalf);
  const auto plan = problem.FirstPlan();
  problem.Run(plan);
  cudaGraphExec_t exec = problem.Capture(plan);
  problem.Clear();
  ASSERT_EQ(cudaGraphLaunch(exec, problem.stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(problem.stream), cudaSuccess);
  EXPECT_EQ(problem.Difference(), 0);
  cudaGraphExecDestroy(exec);
}

TEST(Engines, WhatTheVariantPackHasIsChecked) {
  Problem problem(kHalf);
  const auto plan = problem.PlanWithWorkspace();
  ASSERT_EQ(problem.Execute(plan), CUDNN_STATUS_SUCCESS);
  const auto execute = [&](const Descriptor& pack) {
    return cudnnBackendExecute(problem.handle.get(), plan.descriptor.get(), pack.get());
  };
  {
    Descriptor pack = problem.Pack();
    EXPECT_EQ(execute(pack), CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
    ASSERT_TRUE(pack.Finalize().ok());
    EXPECT_EQ(execute(pack), CUDNN_STATUS_BAD_PARAM_NULL_POINTER) << "of an earlier pack";
  }
  void* const x = std::exchange(problem.allocated[0], static_cast<char*>(problem.allocated[0]) + 2);
  EXPECT_EQ(problem.Execute(plan), CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
  problem.allocated[0] = nullptr;
  EXPECT_EQ(problem.Execute(plan), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  problem.allocated[0] = x;
  EXPECT_EQ(problem.Execute(plan), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(cudaStreamSynchronize(problem.stream), cudaSuccess);
}

TEST(Engines, PlansAndGraphsNeedWhatIsFinalisedAndAHandle) {
  Problem problem(kHalf);
  Descriptor pack = problem.Pack();
  ASSERT_TRUE(pack.Finalize().ok());
  const Descriptor plan = Descriptor::Create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR).value();
  EXPECT_EQ(cudnnBackendExecute(problem.handle.get(), plan.get(), pack.get()),
            CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  Descriptor graph = Descriptor::Create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR).value();
  graph.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, cudnnHandle_t{});
  EXPECT_TRUE(absl::StartsWith(graph.Finalize().message(), "set attribute"));
  graph = Descriptor::Create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR).value();
  graph.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, int64_t{1});
  EXPECT_TRUE(absl::StartsWith(graph.Finalize().message(), "set attribute"));
  EXPECT_EQ(cudnnCreate(nullptr), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
}

TEST(Engines, DestroyingAHandleSynchronisesWhichACaptureForbids) {
  Problem problem(kHalf);
  EXPECT_EQ(problem.Capture([&] { problem.handle.reset(); }), cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
}

TEST(Engines, TheTextOfAnErrorIsItsThreadsOwn) {
  EXPECT_EQ(cudnnBackendExecute(nullptr, nullptr, nullptr), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  std::array<char, 200> text = {};
  std::thread([&] { cudnnGetLastErrorString(text.data(), text.size()); }).join();
  EXPECT_STREQ(text.data(), "");
  cudnnGetLastErrorString(text.data(), text.size());
  EXPECT_NE(std::string(text.data()).find("an argument is null"), std::string::npos);
}

TEST(Engines, NondeterministicOnesDifferFromRunToRun) {
  Problem problem("bwd_filter,x=2x32x17x17,w=64x32x3x3,pad=1,nhwc,f16", false);
  std::map<bool, int> differ, ran;
  problem.ForEachPlan([&](const convtune::Candidate& candidate, const auto& plan) {
    problem.Run(plan);
    const std::vector<double> first = problem.Output();
    problem.Run(plan);
    const bool nondeterministic = candidate.has(NumericalNote::kNondeterministic);
    ++ran[nondeterministic];
    differ[nondeterministic] += first != problem.Output() ? 1 : 0;
  });
  EXPECT_GT(ran[true], 0);
  EXPECT_GT(ran[false], 0);
  EXPECT_EQ(differ[true], ran[true]);
  EXPECT_EQ(differ[false], 0);
}

TEST(Engines, FirstLaunchesLoadCodeWhichACaptureForbids) {
  Problem problem(kHalf);
  const auto plan = problem.FirstPlan();
  EXPECT_EQ(
      problem.Capture([&] { EXPECT_EQ(problem.Execute(plan), CUDNN_STATUS_EXECUTION_FAILED); }),
      cudaErrorStreamCaptureInvalidated);
  // cuDNN's own runtime still has the error: the next launch takes it.
  EXPECT_EQ(problem.Execute(plan), CUDNN_STATUS_EXECUTION_FAILED);
  EXPECT_EQ(problem.Execute(plan), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(cudaStreamSynchronize(problem.stream), cudaSuccess);
  cudaGetLastError();
}

TEST(CostModel, ConfigsDifferAndSomeTie) {
  Program program;
  program.convolution = ToConvolution(ConvProblem::Parse(kHalf).value());
  std::vector<double> values;
  for (int i = 0; i < 80; ++i) {
    const std::string engine = std::to_string(i / 10);
    values.push_back(SlownessOf(program, engine, engine + ",k2=" + std::to_string(i), 1));
    EXPECT_GE(values.back(), 1);
    EXPECT_LT(values.back(), 4.02);
    EXPECT_EQ(values.back(), SlownessOf(program, engine, engine + ",k2=" + std::to_string(i), 1));
    EXPECT_NE(values.back(), SlownessOf(program, engine, engine + ",k2=" + std::to_string(i), 2));
  }
  std::sort(values.begin(), values.end());
  EXPECT_GT(values.back(), 2 * values.front());
  int ties = 0;
  for (size_t i = 1; i < values.size(); ++i) ties += values[i] < 1.01 * values[i - 1] ? 1 : 0;
  EXPECT_GT(ties, 5);
}

TEST(CostModel, IsARoofline) {
  const GpuProfile& gpu = Gpu::Get().profile();
  Program program;
  program.convolution =
      ToConvolution(ConvProblem::Parse("fwd,x=32x512x56x56,w=512x512x3x3,pad=1,nhwc,f16").value());
  // 237 * 10^9 multiply-adds at 132 * 2048 for each of 1,980 MHz take 442 us.
  EXPECT_NEAR(MicrosecondsOf(program, true, {}, 1, gpu), 444, 2);
  EXPECT_NEAR(MicrosecondsOf(program, false, {}, 1, gpu), 2 + 442 * 8, 20);
  EXPECT_NEAR(MicrosecondsOf(program, true, {}, 2, gpu), 2 + 442 * 2, 4);
  // 10 GB at 3.9 TB/s take 2.5 ms.
  EXPECT_NEAR(MicrosecondsOf(program, true, {10'000'000'000, 0}, 1, gpu), 2544, 20);
  EXPECT_LT(MicrosecondsOf(program, true, {0, 10'000'000'000}, 1, gpu),
            MicrosecondsOf(program, true, {10'000'000'000, 0}, 1, gpu));
}

TEST(Faults, AreDoneToTheOutput) {
  Problem problem("fwd,x=2x8x9x7,w=16x8x3x3,pad=1,stride=2,nchw,f32", false);
  std::optional<EngineConfig> exact;
  problem.ForEachPlan([&](const convtune::Candidate& candidate, const auto&) {
    if (!candidate.has(NumericalNote::kTensorCore)) exact = std::get<EngineConfig>(candidate.id);
  });
  const auto plan = worker::cudnn::ExecutionPlan::Create(*problem.graph, exact.value()).value();
  const auto run = [&](const std::string& action) {
    const Faults faults("operation:fwd launch:eager = " + action);
    problem.Clear();
    problem.Run(plan);
    EXPECT_EQ(Faults::Fired(), 1) << action;
  };
  const auto behind = [&] { return problem.output[problem.output_bytes]; };
  run("wrong");
  EXPECT_GT(problem.Difference(), 0.5);
  run("nan");
  EXPECT_TRUE(std::isnan(problem.Output()[0]));
  run("tf32");
  EXPECT_GT(problem.Difference(), 1e-5);
  EXPECT_LT(problem.Difference(), 1e-3);
  EXPECT_EQ(behind(), '\xFF');
  run("beyond_output");
  EXPECT_NE(behind(), '\xFF');
  problem.Clear();
  problem.Run(plan);
  EXPECT_LT(problem.Difference(), 1e-5) << "without a fault it is right again";
  EXPECT_EQ(behind(), '\xFF');
}

TEST(Faults, OfTheCall) {
  Problem problem(kHalf);
  const EngineConfig config = problem.FirstConfig();
  const auto plan = problem.FirstPlan();
  ASSERT_EQ(problem.Execute(plan), CUDNN_STATUS_SUCCESS);
  {
    const Faults faults("config:" + ToText(config).substr(6) + " nth:2 = not_supported");
    EXPECT_EQ(problem.Execute(plan), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(problem.Execute(plan), CUDNN_STATUS_NOT_SUPPORTED);
    EXPECT_EQ(problem.Execute(plan), CUDNN_STATUS_SUCCESS);
  }
  {
    const Faults faults("engine:" + std::to_string(config.engine_index) + " times:1 = fail");
    EXPECT_EQ(problem.Execute(plan), CUDNN_STATUS_EXECUTION_FAILED);
    EXPECT_EQ(problem.Execute(plan), CUDNN_STATUS_SUCCESS);
  }
  for (const std::string action : {"synchronize", "allocate"}) {
    const Faults faults("operation:fwd = " + action);
    EXPECT_EQ(problem.Execute(plan), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(
        problem.Capture([&] { EXPECT_EQ(problem.Execute(plan), CUDNN_STATUS_EXECUTION_FAILED); }),
        cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(problem.Execute(plan), CUDNN_STATUS_EXECUTION_FAILED) << "the error that is left";
    EXPECT_EQ(problem.Execute(plan), CUDNN_STATUS_SUCCESS);
  }
  {
    const Faults faults("launch:capture = fork");
    EXPECT_EQ(problem.Capture([&] { EXPECT_EQ(problem.Execute(plan), CUDNN_STATUS_SUCCESS); }),
              cudaErrorStreamCaptureUnjoined);
  }
  EXPECT_EQ(cudaStreamSynchronize(problem.stream), cudaSuccess);
  {
    const Faults faults("launch:eager = leave_capture_open");
    EXPECT_EQ(problem.Execute(plan), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudaStreamSynchronize(problem.stream), cudaErrorStreamCaptureUnsupported);
  }
  cudaGetLastError();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(problem.stream, &graph), cudaErrorStreamCaptureInvalidated);
}

TEST(Faults, ForkWaitsForACapture) {
  Problem problem(kHalf);
  const auto plan = problem.FirstPlan();
  const Faults faults("operation:fwd = fork");
  ASSERT_EQ(problem.Execute(plan), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(Faults::Fired(), 0);
}

TEST(Faults, BeyondTheWorkspace) {
  Problem problem(kHalf);
  const auto plan = problem.PlanWithWorkspace();
  const char& behind = static_cast<char*>(problem.workspace)[plan.workspace_bytes];
  const char before = behind;
  problem.Run(plan);
  EXPECT_EQ(behind, before);
  const Faults faults("operation:fwd = beyond_workspace");
  problem.Run(plan);
  EXPECT_NE(behind, before);
  EXPECT_EQ(Faults::Fired(), 1);
}

TEST(Faults, OfReplaysAlone) {
  Problem problem(kHalf);
  const auto plan = problem.FirstPlan();
  const Faults faults("launch:replay = wrong");
  problem.Run(plan);
  EXPECT_EQ(problem.Difference(), 0);
  cudaGraphExec_t exec = problem.Capture(plan);
  ASSERT_EQ(cudaGraphLaunch(exec, problem.stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(problem.stream), cudaSuccess);
  EXPECT_GT(problem.Difference(), 0.5);
  EXPECT_EQ(Faults::Fired(), 1);
  cudaGraphExecDestroy(exec);
}

TEST(Faults, OfTheFirstLoadOfCode) {
  Problem problem(kHalf);
  const auto plan = problem.FirstPlan();
  const Faults faults("load_code times:1 = fail");
  EXPECT_EQ(problem.Execute(plan), CUDNN_STATUS_EXECUTION_FAILED);
  EXPECT_EQ(problem.Execute(plan), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(Faults::Fired(), 1);
}

TEST(Faults, SlowTakesAThousandTimesAsLong) {
  Problem problem(kHalf);
  const auto plan = problem.FirstPlan();
  cudaEvent_t begin = nullptr, end = nullptr;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  const auto milliseconds = [&] {
    float ms = 0;
    EXPECT_EQ(problem.Execute(plan), CUDNN_STATUS_SUCCESS);  // loads code
    EXPECT_EQ(cudaStreamSynchronize(problem.stream), cudaSuccess);
    cudaEventRecord(begin, problem.stream);
    EXPECT_EQ(problem.Execute(plan), CUDNN_STATUS_SUCCESS);
    cudaEventRecord(end, problem.stream);
    EXPECT_EQ(cudaStreamSynchronize(problem.stream), cudaSuccess);
    EXPECT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaSuccess);
    return ms;
  };
  const float usual = milliseconds();
  const Faults faults("operation:fwd = slow");
  EXPECT_GT(milliseconds(), 100 * usual);
  EXPECT_EQ(Faults::Fired(), 2);
}

TEST(Faults, OfAnEntryOfFind) {
  Problem problem(kHalf);
  const auto legacy = problem.Legacy();
  const Faults faults("find:1/1 = fail");
  const auto found = problem.Find(legacy.get());
  int failed = 0;
  for (const auto& entry : found) {
    if (entry.id != LegacyAlgorithm{1, 1}) continue;
    EXPECT_EQ(entry.status, CUDNN_STATUS_EXECUTION_FAILED);
    ++failed;
  }
  EXPECT_EQ(failed, 1);
  EXPECT_EQ(Faults::Fired(), 1);
}

TEST(Legacy, AWorkspaceThatIsTooSmallIsRefused) {
  Problem problem(kHalf);
  const auto legacy = problem.Legacy();
  const LegacyAlgorithm precomputed = {1, 1};
  const int64_t needed = legacy->WorkspaceBytes(precomputed).value();
  ASSERT_GT(needed, 0);
  EXPECT_TRUE(absl::IsInvalidArgument(
      legacy->Launch(precomputed, problem.pointers, problem.workspace, needed - 1)));
  EXPECT_TRUE(
      absl::IsInvalidArgument(legacy->Launch(precomputed, problem.pointers, nullptr, needed)));
  // GEMM does not do f16.
  EXPECT_TRUE(absl::IsUnimplemented(legacy->WorkspaceBytes({2, 0}).status()));
}

TEST(Legacy, AlgorithmsAreThoseOfTheManual) {
  struct Row {
    const char* problem;
    int algorithm;
    bool supported;
  };
  for (const Row& row : {Row{"fwd,x=2x8x9x7,w=16x8x3x3,nchw,f32", 2, true},
                         Row{"fwd,x=2x8x9x7,w=16x8x3x3,nchw,f16", 2, false},
                         Row{"fwd,x=2x8x9x7,w=16x8x3x3,nchw,f32", 4, true},
                         Row{"fwd,x=2x8x9x7,w=16x8x3x3,stride=2,nchw,f32", 4, false},
                         Row{"fwd,x=2x8x9x7,w=16x8x3x3,dilation=2,nchw,f32", 5, false},
                         Row{"fwd,x=2x8x9x7,w=16x8x3x3,nchw,f32", 6, true},
                         Row{"fwd,x=2x8x9x7,w=16x8x5x5,nchw,f32", 6, false},
                         Row{"fwd,x=2x8x9x7,w=16x8x5x5,nchw,f32", 7, true},
                         Row{"fwd,x=2x8x9x7,w=16x8x3x3,nhwc,f16", 7, false},
                         Row{"fwd,x=2x8x9x7,w=16x8x3x3,nchw,f32", 3, false},
                         Row{"fwd,x=2x16x9x7,w=16x8x3x3,groups=2,nchw,f32", 6, false},
                         Row{"bwd_data,x=2x8x9x7,w=16x8x3x3,nchw,f32", 4, true},
                         Row{"bwd_filter,x=2x8x9x7,w=16x8x3x3,nchw,f32", 4, false},
                         Row{"bwd_filter,x=2x8x9x7,w=16x8x3x3,nchw,f64", 3, true},
                         Row{"bwd_filter,x=2x8x9x7,w=16x8x3x3,nhwc,f16", 3, false},
                         Row{"fwd,x=2x8x9x7,w=16x8x3x3,nchw,f16,out=f32", 1, false},
                         Row{"fwd,x=2x8x9x7,w=16x8x3x3,nchw,f16,acc=f16", 0, false},
                         Row{"fwd,x=2x8x9x7,w=16x8x3x3,nchw,f16,acc=f16", 1, true},
                         Row{"fwd,x=2x8x9x7,w=16x8x3x3,nchw,f16,acc=f16", 7, true},
                         Row{"fwd,x=2x8x9x7,w=16x8x5x5,nchw,f16,acc=f16", 7, false},
                         Row{"fwd,x=2x8x9x7,w=16x8x3x3,nhwc,i8,out=f32", 1, true},
                         Row{"fwd,x=2x8x9x7,w=16x8x3x3,nhwc,i8", 1, false},
                         Row{"fwd,x=2x8x9x7,w=16x8x3x3,dilation=2,nhwc,i8,out=f32", 1, false},
                         Row{"fwd,x=2x6x9x7,w=16x6x3x3,nhwc,i8,out=f32", 1, false}}) {
    int64_t bytes = 0;
    EXPECT_EQ(
        WorkspaceOf(ToConvolution(ConvProblem::Parse(row.problem).value()), row.algorithm, &bytes),
        row.supported ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED)
        << row.problem << " " << row.algorithm;
  }
}

// It precomputes indices, as the manual says.
TEST(Legacy, Algorithm3OfTheFilterHasAWorkspace) {
  int64_t bytes = 0;
  const auto problem = ConvProblem::Parse("bwd_filter,x=2x8x9x7,w=16x8x3x3,nchw,f32").value();
  EXPECT_EQ(WorkspaceOf(ToConvolution(problem), 3, &bytes), CUDNN_STATUS_SUCCESS);
  EXPECT_GT(bytes, 0);
}

TEST(Legacy, AFilterWithChannelsLastWantsTensorsSo) {
  Convolution conv = ToConvolution(ConvProblem::Parse("fwd,x=2x8x9x7,w=16x8x3x3,nchw,f16").value());
  int64_t bytes = 0;
  EXPECT_EQ(WorkspaceOf(conv, 0, &bytes), CUDNN_STATUS_SUCCESS);
  conv.w.strides = {72, 1, 72, 24, 8};
  EXPECT_EQ(WorkspaceOf(conv, 0, &bytes), CUDNN_STATUS_NOT_SUPPORTED);
}

TEST(Legacy, ArgumentsAreChecked) {
  Problem problem(kHalf);
  const auto legacy = problem.Legacy();
  worker::cudnn::ConvPointers pointers = problem.pointers;
  pointers.y = nullptr;
  EXPECT_TRUE(absl::IsInvalidArgument(legacy->Launch({0, 0}, pointers, nullptr, 0)));
  EXPECT_TRUE(
      absl::IsInvalidArgument(legacy->Find(CUDNN_TENSOR_OP_MATH, pointers, nullptr, 0).status()));
  auto without_handle = worker::cudnn::LegacyConvolution::Create(problem.problem, nullptr).value();
  EXPECT_TRUE(absl::IsInvalidArgument(without_handle->Expected(CUDNN_DEFAULT_MATH).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(without_handle->WorkspaceBytes({0, 0}).status()));
}

TEST(Legacy, AnOutputOfOtherSizesIsRefused) {
  Problem problem(kHalf);
  cudnnTensorDescriptor_t x = nullptr;
  cudnnFilterDescriptor_t w = nullptr;
  cudnnConvolutionDescriptor_t conv = nullptr;
  cudnnCreateTensorDescriptor(&x);
  cudnnCreateFilterDescriptor(&w);
  cudnnCreateConvolutionDescriptor(&conv);
  cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 8, 9, 9);
  cudnnSetFilter4dDescriptor(w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 8, 8, 3, 3);
  size_t bytes = 0;
  for (const int pad : {1, 0}) {
    cudnnSetConvolution2dDescriptor(conv, pad, pad, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                    CUDNN_DATA_FLOAT);
    EXPECT_EQ(
        cudnnGetConvolutionForwardWorkspaceSize(problem.handle.get(), x, w, conv, x,
                                                CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, &bytes),
        pad == 1 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
  }
  cudnnDestroyConvolutionDescriptor(conv);
  cudnnDestroyFilterDescriptor(w);
  cudnnDestroyTensorDescriptor(x);
}

TEST(Legacy, AnExecutionSpoilsItsWorkspaceAllOver) {
  Problem problem("fwd,x=2x8x9x7,w=16x8x3x3,nchw,f32");
  const auto legacy = problem.Legacy();
  const LegacyAlgorithm fft = {4, 0};
  const int64_t bytes = legacy->WorkspaceBytes(fft).value();
  auto* const workspace = static_cast<char*>(problem.workspace);
  std::memset(workspace, 0, static_cast<size_t>(bytes));
  ASSERT_TRUE(legacy->Launch(fft, problem.pointers, workspace, bytes).ok());
  ASSERT_EQ(cudaStreamSynchronize(problem.stream), cudaSuccess);
  for (int part = 0; part < 16; ++part) {
    const char* const begin = workspace + bytes * part / 16;
    EXPECT_TRUE(std::any_of(begin, begin + bytes / 16, [](char byte) { return byte != 0; }))
        << part;
  }
}

TEST(Legacy, FindLeavesNoResult) {
  Problem problem(kHalf);
  const auto legacy = problem.Legacy();
  problem.Find(legacy.get());
  EXPECT_NE(problem.Difference(), 0);
}

// As its executions do, which share the runtime of cuDNN's library.
TEST(Legacy, FindMeetsTheErrorOfAnEarlierLaunch) {
  Problem problem("fwd,x=2x8x9x9,w=16x8x3x3,pad=1,nhwc,f16");
  const auto legacy = problem.Legacy();
  EXPECT_EQ(problem.Capture([&] {
    EXPECT_FALSE(legacy->Launch({0, 0}, problem.pointers, nullptr, 0).ok());
  }),
            cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
  const auto found = problem.Find(legacy.get());
  EXPECT_EQ(std::count_if(
                found.begin(), found.end(),
                [](const auto& entry) { return entry.status == CUDNN_STATUS_EXECUTION_FAILED; }),
            1);
}

// What ends or loses the context is done in a process of its own.
void CheckThatTheContextIsLostBy(const std::string& fault) {
  Problem problem(kHalf);
  const auto plan = problem.FirstPlan();
  const Faults faults("operation:fwd = " + fault);
  EXPECT_EQ(problem.Execute(plan), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(cudaStreamSynchronize(problem.stream), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
}

TEST(EnginesDeathTest, FaultsThatEndTheContextOrTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  IN_ANOTHER_PROCESS(CheckThatTheContextIsLostBy("sticky"));
  EXPECT_EXIT(CheckThatTheContextIsLostBy("abort"), testing::KilledBySignal(SIGABRT), "");
  EXPECT_EXIT(
      {
        alarm(5);
        CheckThatTheContextIsLostBy("hang");
      },
      testing::KilledBySignal(SIGALRM), "");
}

void CheckThatAGraphHasNoCodeWhenItsPlanIsGone() {
  Problem problem(kHalf);
  cudaGraphExec_t exec = nullptr;
  {
    const auto plan = problem.FirstPlan();
    problem.Run(plan);
    exec = problem.Capture(plan);
    cudaGraphLaunch(exec, problem.stream);
    EXPECT_EQ(cudaStreamSynchronize(problem.stream), cudaSuccess);
  }
  cudaGraphLaunch(exec, problem.stream);
  EXPECT_EQ(cudaStreamSynchronize(problem.stream), cudaErrorIllegalAddress);
}

// As by a stale variant pack.
void CheckThatFreedMemoryIsAnIllegalAddress() {
  Problem problem(kHalf);
  const auto plan = problem.FirstPlan();
  cudaFree(problem.pointers.w);
  EXPECT_EQ(problem.Execute(plan), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(cudaStreamSynchronize(problem.stream), cudaErrorIllegalAddress);
}

TEST(EnginesDeathTest, AnIllegalAddressLosesTheContext) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  IN_ANOTHER_PROCESS(CheckThatAGraphHasNoCodeWhenItsPlanIsGone());
  IN_ANOTHER_PROCESS(CheckThatFreedMemoryIsAnIllegalAddress());
}

}  // namespace
}  // namespace convtune::simgpu
