// The simulated driver, as device/kernels.cc and any other program meets it: by
// dlopen of libcuda.so.1.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/worker/device/kernels.h"
#include "tests/simgpu/runtime/gpu.h"
#include "tests/unit/simgpu/another_process.h"
#include "tests/unit/simgpu/fault_script.h"

namespace convtune::simgpu {
namespace {

using ::testing::HasSubstr;
using worker::device::Kernels;

template <typename F>
F* Find(const char* name) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  EXPECT_NE(library, nullptr) << dlerror();
  return reinterpret_cast<F*>(dlsym(library, name));
}

CUresult LoadModule(const char* text, CUmodule* module, std::string* log = nullptr) {
  std::array<char, 64> buffer = {};
  std::array<CUjit_option, 2> options = {CU_JIT_ERROR_LOG_BUFFER,
                                         CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  std::array<void*, 2> values = {buffer.data(), reinterpret_cast<void*>(buffer.size())};
  const CUresult result = Find<decltype(cuModuleLoadDataEx)>("cuModuleLoadDataEx")(
      module, text, options.size(), options.data(), values.data());
  if (log != nullptr) {
    *log = buffer.data();
    EXPECT_EQ(reinterpret_cast<size_t>(values[1]), log->size());
  }
  return result;
}

CUmodule LoadKernels() {
  CUmodule module = nullptr;
  EXPECT_EQ(LoadModule(worker::device::kKernelsPtx, &module), CUDA_SUCCESS);
  return module;
}

CUresult Unload(CUmodule module) {
  return Find<decltype(cuModuleUnload)>("cuModuleUnload")(module);
}

CUfunction GetFunction(CUmodule module, const char* name) {
  CUfunction function = nullptr;
  EXPECT_EQ(Find<decltype(cuModuleGetFunction)>("cuModuleGetFunction")(&function, module, name),
            CUDA_SUCCESS);
  return function;
}

class DriverTest : public ::testing::Test {
 protected:
  DriverTest() {
    WriteFaults("");
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaHostAlloc(reinterpret_cast<void**>(&gate_), 64, cudaHostAllocMapped),
              cudaSuccess);
    std::memset(gate_, 0, 64);
    EXPECT_EQ(cudaMalloc(&memory_, kBytes), cudaSuccess);
  }
  ~DriverTest() override {
    cudaStreamSynchronize(stream_);
    cudaGetLastError();
    cudaFree(memory_);
    cudaFreeHost(gate_);
    cudaStreamDestroy(stream_);
  }

  std::unique_ptr<Kernels> MakeKernels() {
    absl::StatusOr<std::unique_ptr<Kernels>> kernels =
        Kernels::Load(Gpu::Get().profile().sm_count, stream_);
    EXPECT_TRUE(kernels.ok()) << kernels.status();
    return kernels.ok() ? *std::move(kernels) : nullptr;
  }
  // Between events on both sides of it, without the host's time to launch.
  double BlockedUs(Kernels* kernels, const std::function<absl::Status()>& launch) {
    gate_[0] = 0;
    EXPECT_EQ(kernels->Block(gate_, 1'000'000'000), absl::OkStatus());
    return ElapsedUs([&] {
      absl::Status launched = launch();
      gate_[0] = 1;
      return launched;
    });
  }
  double ElapsedUs(const std::function<absl::Status()>& launch) {
    std::array<cudaEvent_t, 2> events = {};
    for (cudaEvent_t& event : events) EXPECT_EQ(cudaEventCreate(&event), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(events[0], stream_), cudaSuccess);
    EXPECT_EQ(launch(), absl::OkStatus());
    EXPECT_EQ(cudaEventRecord(events[1], stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    float milliseconds = 0;
    EXPECT_EQ(cudaEventElapsedTime(&milliseconds, events[0], events[1]), cudaSuccess);
    for (cudaEvent_t event : events) cudaEventDestroy(event);
    return 1000.0 * milliseconds;
  }
  // Launches the stamp of a module that the caller loaded, with these sizes.
  CUresult LaunchStamp(CUfunction function, unsigned grid, unsigned block, unsigned grid_y = 1) {
    void* stamp = memory_;
    std::array<void*, 1> parameters = {&stamp};
    const CUresult result = Find<decltype(cuLaunchKernel)>("cuLaunchKernel")(
        function, grid, grid_y, 1, block, 1, 1, 0, stream_, parameters.data(), nullptr);
    // They are copied in the call.
    stamp = nullptr;
    return result;
  }

  static constexpr int64_t kBytes = 32 << 20;
  cudaStream_t stream_ = nullptr;
  uint32_t* gate_ = nullptr;
  void* memory_ = nullptr;
};

// In a new process, in which nothing ran before.
TEST(DriverWithoutContextTest, LoadsNothing) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  IN_ANOTHER_PROCESS({
    CUmodule module = nullptr;
    EXPECT_EQ(LoadModule(worker::device::kKernelsPtx, &module), CUDA_ERROR_NOT_INITIALIZED);
    int devices = 0;
    EXPECT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
    EXPECT_EQ(LoadModule(worker::device::kKernelsPtx, &module), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(LoadModule(worker::device::kKernelsPtx, &module), CUDA_SUCCESS);
  });
  GTEST_FLAG_SET(death_test_style, "fast");
}

TEST_F(DriverTest, ABlockingKernelHoldsTheStreamForItsLimit) {
  const auto kernels = MakeKernels();
  // The shortest: the host's time to launch the kernel is in it.
  const auto block = [&](uint64_t ns) {
    double shortest = 1e9;
    for (int i = 0; i < 10; ++i) {
      shortest = std::min(shortest, ElapsedUs([&] { return kernels->Block(gate_, ns); }));
    }
    return shortest;
  };
  const double shorter = block(50'000);
  EXPECT_GE(shorter, 50);
  EXPECT_LT(shorter, 60);
  EXPECT_NEAR(block(500'000) - shorter, 450, 2);
  EXPECT_EQ(gate_[1], 1);
}

TEST_F(DriverTest, AGateThatTheHostOpensInTimeIsNotGivenUp) {
  const auto kernels = MakeKernels();
  ASSERT_EQ(kernels->Block(gate_, 1'000'000'000), absl::OkStatus());
  gate_[0] = 1;
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(gate_[1], 0);
}

TEST_F(DriverTest, WhatWaitsBehindABlockingKernelMovesTimeToItsLimit) {
  const auto kernels = MakeKernels();
  ASSERT_EQ(kernels->Block(gate_, 700'000'000), absl::OkStatus());
  const int64_t before = Gpu::Get().NowNs();
  CUmodule module = nullptr;
  EXPECT_EQ(LoadModule(worker::device::kKernelsPtx, &module), CUDA_SUCCESS);
  // The launch may count as up to 20 ms earlier: a host is believed to have been quick.
  EXPECT_GE(Gpu::Get().NowNs() - before, 680'000'000);
  EXPECT_EQ(gate_[1], 1);
  // So does a kernel's first launch, and none after it.
  CUfunction const stamp = GetFunction(module, "convtune_stamp");
  for (const uint32_t given_up : {1, 0}) {
    gate_[1] = 0;
    ASSERT_EQ(kernels->Block(gate_, 700'000'000), absl::OkStatus());
    EXPECT_EQ(LaunchStamp(stamp, 132, 1), CUDA_SUCCESS);
    EXPECT_EQ(gate_[1], given_up);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }
  EXPECT_EQ(Unload(module), CUDA_SUCCESS);
}

TEST_F(DriverTest, StampsSayTheClock) {
  const auto kernels = MakeKernels();
  auto* const stamps = static_cast<uint64_t*>(memory_);
  ASSERT_EQ(kernels->PutStamp(stamps), absl::OkStatus());
  ASSERT_EQ(kernels->Block(gate_, 10'000'000), absl::OkStatus());
  ASSERT_EQ(kernels->PutStamp(stamps + 2), absl::OkStatus());
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  const auto ns = static_cast<double>(stamps[2] - stamps[0]);
  EXPECT_GE(ns, 1e7);
  EXPECT_NEAR(1000 * static_cast<double>(stamps[3] - stamps[1]) / ns,
              Gpu::Get().profile().sm_clock_mhz, 1);
}

TEST_F(DriverTest, ASweepTakesWhatItsMemoryTakes) {
  const auto kernels = MakeKernels();
  const auto sweep = [&] {
    return BlockedUs(kernels.get(), [&] { return kernels->Sweep(memory_, kBytes); });
  };
  const double cold = sweep();
  EXPECT_NEAR(cold, 1e6 * kBytes / Gpu::Get().profile().memory_bytes_per_second + 3, 2);
  EXPECT_LT(sweep(), cold / 1.3);
}

TEST_F(DriverTest, LargeScansAndGathers) {
  const auto kernels = MakeKernels();
  constexpr uint64_t kCount = 1'000'003;
  auto* const data = static_cast<uint16_t*>(memory_);
  for (uint64_t i = 0; i < kCount; ++i) data[i] = static_cast<uint16_t>(i);
  auto* const counter = reinterpret_cast<uint64_t*>(static_cast<char*>(memory_) + (16 << 20));
  *counter = 3;
  uint64_t expected = 3;
  for (uint64_t i = 0; i < kCount; ++i) expected += (data[i] & 0x7C00) == 0x7C00;
  ASSERT_EQ(kernels->Scan(data, kCount, 2, 0x7C00, counter), absl::OkStatus());
  auto* const offsets = counter + 1;
  constexpr uint32_t kElements = 5000;
  for (uint64_t i = 0; i < kElements; ++i) offsets[i] = 2 * ((i * 7919) % kCount);
  auto* const out = reinterpret_cast<uint16_t*>(offsets + kElements);
  out[kElements] = 0xEEEE;
  ASSERT_EQ(kernels->Gather(data, offsets, kElements, 2, out), absl::OkStatus());
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(*counter, expected);
  for (uint64_t i = 0; i < kElements; ++i) {
    EXPECT_EQ(out[i], static_cast<uint16_t>((i * 7919) % kCount)) << i;
  }
  EXPECT_EQ(out[kElements], 0xEEEE);
}

TEST_F(DriverTest, WhatACompilerRefusesIsInItsLog) {
  CUmodule module = nullptr;
  std::string log;
  EXPECT_EQ(LoadModule(".version 5.0\n.target sm_50\n.address_size 64\n.visible .entry k() {\n"
                       "div.u32 %r1, %r1, %r1;\n}",
                       &module, &log),
            CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(log, "line 5: unknown instruction 'div.u32'");
  // What does not fit is cut.
  EXPECT_EQ(LoadModule(("\n" + std::string(200, 'x')).c_str(), &module, &log),
            CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(log.size(), 63);
  EXPECT_EQ(module, nullptr);
}

TEST_F(DriverTest, NoCompiler) {
  CUmodule module = nullptr;
  std::string log;
  setenv("CUDA_DISABLE_PTX_JIT", "1", 1);
  EXPECT_EQ(LoadModule(worker::device::kKernelsPtx, &module), CUDA_ERROR_JIT_COMPILATION_DISABLED);
  unsetenv("CUDA_DISABLE_PTX_JIT");
  WriteFaults("jit = fail\n");
  const auto kernels = Kernels::Load(132, stream_);
  EXPECT_THAT(std::string(kernels.status().message()), HasSubstr("cudaErrorJitCompilerNotFound"));
  EXPECT_EQ(FiredFaults(), "jit = fail\n");
}

TEST_F(DriverTest, WrongCallsAreRefused) {
  CUmodule const module = LoadKernels();
  CUfunction stamp = GetFunction(module, "convtune_stamp");
  CUfunction none = nullptr;
  EXPECT_EQ(Find<decltype(cuModuleGetFunction)>("cuModuleGetFunction")(&none, module, "other"),
            CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(LaunchStamp(stamp, 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(LaunchStamp(stamp, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(LaunchStamp(stamp, 1, 1025), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(LaunchStamp(stamp, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(LaunchStamp(stamp, 1, 1, 2), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(LaunchStamp(stamp, 1, 1024), CUDA_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(Unload(module), CUDA_SUCCESS);
  EXPECT_EQ(Unload(module), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(LaunchStamp(stamp, 1, 1), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(DriverTest, WhatOnlyCudnnLooksForHasNoDevice) {
  EXPECT_EQ(Find<int()>("cuCtxGetCurrent")(), 100);
  EXPECT_EQ(Find<int()>("cuDriverGetVersion"), nullptr);
}

TEST_F(DriverTest, AFirstLaunchSpoilsACapture) {
  CUmodule const module = LoadKernels();
  CUfunction const stamp = GetFunction(module, "convtune_stamp");
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(LaunchStamp(stamp, 132, 1), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(LaunchStamp(stamp, 132, 1), CUDA_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  // From then on it is captured, with the parameters that it has now.
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(LaunchStamp(stamp, 132, 1), CUDA_SUCCESS);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  std::memset(memory_, 0, 16);
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaGraphInstantiateWithFlags(&exec, graph, 0), cudaSuccess);
  const auto replay = [&] {
    EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
    return cudaStreamSynchronize(stream_);
  };
  EXPECT_EQ(replay(), cudaSuccess);
  EXPECT_NE(*static_cast<uint64_t*>(memory_), 0);
  // A graph whose code is gone.
  EXPECT_EQ(Unload(module), CUDA_SUCCESS);
  IN_ANOTHER_PROCESS(EXPECT_EQ(replay(), cudaErrorIllegalAddress));
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(DriverTest, AWrongAddressDestroysTheContext) {
  const auto kernels = MakeKernels();
  for (const auto& [counter, error] : {std::pair{int64_t{4}, "cudaErrorMisalignedAddress"},
                                       std::pair{kBytes + (1 << 30), "cudaErrorIllegalAddress"}}) {
    IN_ANOTHER_PROCESS({
      EXPECT_EQ(kernels->Scan(memory_, 1000, 1, 0, static_cast<char*>(memory_) + counter),
                absl::OkStatus());
      EXPECT_NE(cudaStreamSynchronize(stream_), cudaSuccess);
      EXPECT_THAT(std::string(kernels->PutStamp(memory_).message()), HasSubstr(error));
    });
  }
}

TEST_F(DriverTest, FaultsOfKernels) {
  const auto kernels = MakeKernels();
  const auto sweep = [&] {
    return BlockedUs(kernels.get(), [&] { return kernels->Sweep(memory_, 1 << 20); });
  };
  sweep();
  const double usual = sweep();
  WriteFaults("kernel:convtune_sweep nth:2 = slow\nkernel:convtune_gather = fail\n");
  EXPECT_LT(sweep(), 2 * usual);
  EXPECT_GT(sweep(), 300 * usual);
  EXPECT_LT(sweep(), 2 * usual);
  EXPECT_THAT(std::string(kernels->Gather(memory_, memory_, 1, 1, memory_).message()),
              HasSubstr("gather elements: cudaErrorLaunchOutOfResources"));
  EXPECT_EQ(kernels->PutStamp(memory_), absl::OkStatus());
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(FiredFaults(), "kernel:convtune_sweep nth:2 = slow\nkernel:convtune_gather = fail\n");
  WriteFaults(
      "kernel:convtune_stamp = sticky\nkernel:convtune_scan = hang\n"
      "kernel:convtune_sweep = abort\n");
  IN_ANOTHER_PROCESS({
    EXPECT_EQ(kernels->PutStamp(memory_), absl::OkStatus());
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorLaunchFailure);
  });
  EXPECT_EXIT(
      {
        alarm(1);
        EXPECT_EQ(kernels->Scan(memory_, 1, 1, 0, memory_), absl::OkStatus());
        cudaStreamSynchronize(stream_);
      },
      ::testing::KilledBySignal(SIGALRM), "");
  EXPECT_EXIT(static_cast<void>(kernels->Sweep(memory_, 64)), ::testing::KilledBySignal(SIGABRT),
              "");
}

}  // namespace
}  // namespace convtune::simgpu
