// The CUDA Runtime API of the simulated GPU, against what the manual says.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/simgpu/runtime/gpu.h"
#include "tests/simgpu/runtime/l2_cache.h"
#include "tests/simgpu/runtime/memory.h"
#include "tests/unit/simgpu/another_process.h"

namespace convtune::simgpu {
namespace {

class RuntimeTest : public ::testing::Test {
 protected:
  RuntimeTest() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  ~RuntimeTest() override {
    cudaGetLastError();
    cudaStreamDestroy(stream_);
  }

  static void* Malloc(size_t bytes) {
    void* data = nullptr;
    EXPECT_EQ(cudaMalloc(&data, bytes), cudaSuccess);
    return data;
  }
  // Work of so many nanoseconds.
  static WorkPtr Busy(
      int64_t ns, std::function<void(const WorkStart&)> effect = [](const WorkStart&) {}) {
    return std::make_shared<Work>(
        Work{[ns, effect = std::move(effect)](const WorkStart& start) -> WorkEnd {
          effect(start);
          return {start.ns + ns};
        }});
  }
  double ElapsedUs(const WorkPtr& work) {
    std::array<cudaEvent_t, 2> events = {};
    for (cudaEvent_t& event : events) EXPECT_EQ(cudaEventCreate(&event), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(events[0], stream_), cudaSuccess);
    EXPECT_EQ(Gpu::Get().Put(stream_, work), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(events[1], stream_), cudaSuccess);
    float milliseconds = 0;
    EXPECT_EQ(cudaEventElapsedTime(&milliseconds, events[0], events[1]), cudaErrorNotReady);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(cudaEventElapsedTime(&milliseconds, events[0], events[1]), cudaSuccess);
    for (cudaEvent_t event : events) EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    return milliseconds * 1000.0;
  }

  // What `put` puts on the stream, as a graph.
  cudaGraphExec_t Captured(const std::function<void()>& put) {
    EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    put();
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    cudaGraphExec_t exec = nullptr;
    EXPECT_EQ(cudaGraphInstantiateWithFlags(&exec, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaErrorInvalidValue);
    return exec;
  }

  cudaStream_t stream_ = nullptr;
};

TEST_F(RuntimeTest, ItsNameSaysThatItIsSimulated) {
  cudaDeviceProp properties = {};
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  EXPECT_STREQ(properties.name, "SIMULATED H200");
  EXPECT_EQ(properties.multiProcessorCount, 132);
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 1), cudaErrorInvalidDevice);
}

TEST_F(RuntimeTest, TheClockSkipsToTheEndOfWhatIsWaitedFor) {
  const int64_t before = Gpu::Get().NowNs();
  ASSERT_EQ(Gpu::Get().Put(stream_, Busy(3'600'000'000'000)), cudaSuccess);
  EXPECT_LT(Gpu::Get().NowNs() - before, 60'000'000'000);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_GE(Gpu::Get().NowNs() - before, 3'599'000'000'000);
}

void CheckThatTheFirstWorkBeginsNow() {
  const int64_t before = Gpu::Get().NowNs();
  int64_t began = 0;
  Work work = {[&](const WorkStart& start) -> WorkEnd {
    began = start.ns;
    return {start.ns + 1};
  }};
  EXPECT_EQ(Gpu::Get().Put(nullptr, std::make_shared<Work>(std::move(work))), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_GE(began, before - 1'000'000'000);
}

// However long the machine has been up: the GPU's clock is the machine's.
TEST(FirstWorkTest, BeginsNow) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  IN_ANOTHER_PROCESS(CheckThatTheFirstWorkBeginsNow());
  GTEST_FLAG_SET(death_test_style, "fast");
}

TEST_F(RuntimeTest, EventsComeInStepsOfHalfAMicrosecond) {
  for (const int64_t ns : {100'000, 100'700, 5'000'123}) {
    const double us = ElapsedUs(Busy(ns));
    EXPECT_NEAR(us, static_cast<double>(ns) / 1000 + 2.5, 1.5);
    EXPECT_NEAR(us * 2, std::nearbyint(us * 2), 1e-3 * us);
  }
}

TEST_F(RuntimeTest, FreshMemoryIsPoisonedAndItsEndIsGuarded) {
  auto* const data = static_cast<unsigned char*>(Malloc(1000));
  // Of no more than this may anybody be sure.
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 512, 256U);
  EXPECT_EQ(data[0], DeviceMemory::kPoison);
  EXPECT_EQ(data[999], DeviceMemory::kPoison);
  EXPECT_DEATH(data[4096] = 0, "");
  EXPECT_DEATH(data[-4096] = 0, "");
  EXPECT_TRUE(Gpu::Get().memory().Contains(data, 1000));
  EXPECT_FALSE(Gpu::Get().memory().Contains(data, 1001));
  EXPECT_FALSE(Gpu::Get().memory().Contains(data - 1, 1));
  ASSERT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_FALSE(Gpu::Get().memory().Contains(data, 1));
  EXPECT_DEATH(data[0] = 0, "");
  EXPECT_EQ(cudaFree(data), cudaErrorInvalidValue);
}

TEST_F(RuntimeTest, AnAddressIsNeverUsedAgain) {
  void* const old = Malloc(1 << 20);
  ASSERT_EQ(cudaFree(old), cudaSuccess);
  std::vector<void*> others;
  for (int i = 0; i < 10; ++i) {
    others.push_back(Malloc(1 << 20));
    EXPECT_FALSE(Gpu::Get().memory().Contains(old, 1));
  }
  for (void* other : others) EXPECT_EQ(cudaFree(other), cudaSuccess);
}

TEST_F(RuntimeTest, MemoryRunsOut) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  ASSERT_EQ(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
  void* data = nullptr;
  // Not all that is free can be had.
  EXPECT_EQ(cudaMalloc(&data, free_bytes), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&data, SIZE_MAX), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  data = Malloc(1 << 20);
  size_t then = 0;
  ASSERT_EQ(cudaMemGetInfo(&then, &total_bytes), cudaSuccess);
  EXPECT_EQ(then, free_bytes - (1 << 20));
  ASSERT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(RuntimeTest, AnAsynchronousCopyReadsTheHostLate) {
  auto* const data = static_cast<char*>(Malloc(4));
  std::string text = "old";
  ASSERT_EQ(cudaMemcpyAsync(data, text.data(), 4, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  text = "new";
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_STREQ(data, "new");
  ASSERT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(RuntimeTest, AnAsynchronousCopyOfPageableMemoryMayWait) {
  void* const data = Malloc(4);
  void* pinned = nullptr;
  ASSERT_EQ(cudaHostAlloc(&pinned, 4, cudaHostAllocMapped), cudaSuccess);
  std::array<char, 4> pageable = {};
  int ran = 0;
  const auto copy = [&](void* to, const void* from, cudaMemcpyKind kind) {
    ran = 0;
    EXPECT_EQ(Gpu::Get().Put(stream_, Busy(1, [&](const WorkStart&) { ++ran; })), cudaSuccess);
    EXPECT_EQ(cudaMemcpyAsync(to, from, 4, kind, stream_), cudaSuccess);
    return ran;
  };
  EXPECT_EQ(copy(data, pageable.data(), cudaMemcpyHostToDevice), 1);
  EXPECT_EQ(copy(pageable.data(), data, cudaMemcpyDeviceToHost), 1);
  EXPECT_EQ(copy(data, pinned, cudaMemcpyHostToDevice), 0);
  EXPECT_EQ(copy(pinned, data, cudaMemcpyDeviceToHost), 0);
  ASSERT_EQ(cudaFree(data), cudaSuccess);
  ASSERT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(RuntimeTest, AnUploadIsOnItsWayAsItReturns) {
  auto* const data = static_cast<char*>(Malloc(5));
  std::string text = "text";
  ASSERT_EQ(cudaMemcpy(data, text.data(), 5, cudaMemcpyHostToDevice), cudaSuccess);
  text = "gone";
  // A non-blocking stream does not wait for the default stream.
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_NE(data[0], 't');
  std::array<char, 5> back = {};
  ASSERT_EQ(cudaMemcpy(back.data(), data, 5, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_STREQ(back.data(), "text");
  ASSERT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(RuntimeTest, ACopysPointersHaveToBeOfItsKind) {
  void* const data = Malloc(512);
  void* const other = Malloc(512);
  EXPECT_EQ(cudaMemcpy(other, data, 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(other, data, 4, cudaMemcpyDeviceToHost, stream_),
            cudaErrorInvalidValue);
  ASSERT_EQ(cudaFree(data), cudaSuccess);
  ASSERT_EQ(cudaFree(other), cudaSuccess);
}

TEST_F(RuntimeTest, CopiesWithinTheGpuAreNotWaitedFor) {
  auto* const data = static_cast<char*>(Malloc(512));
  auto* const other = static_cast<char*>(Malloc(512));
  ASSERT_EQ(cudaMemcpy(data, "text", 5, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_STREQ(data, "text");
  ASSERT_EQ(cudaMemcpy(other, data, 5, cudaMemcpyDeviceToDevice), cudaSuccess);
  EXPECT_NE(other[0], 't');
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_STREQ(other, "text");
  EXPECT_EQ(cudaMemcpy(other, "text", 4, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
}

TEST_F(RuntimeTest, StaleMemoryDestroysTheContext) {
  void* const data = Malloc(1024);
  IN_ANOTHER_PROCESS({
    EXPECT_EQ(Gpu::Get().Put(stream_, Busy(1)), cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(data, 0, 4096, stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorIllegalAddress);
    // For good, in every call.
    EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
    EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    void* more = nullptr;
    EXPECT_EQ(cudaMalloc(&more, 1), cudaErrorIllegalAddress);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaErrorIllegalAddress);
  });
  ASSERT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(RuntimeTest, ACaptureRunsNothingAndItsReplaysDo) {
  int eager = 0;
  int replays = 0;
  const WorkPtr work =
      Busy(10, [&](const WorkStart& start) { ++(start.replay ? replays : eager); });
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
            cudaErrorIllegalState);
  ASSERT_EQ(Gpu::Get().Put(stream_, work), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorIllegalState);
  EXPECT_EQ(graph, nullptr);
}

TEST_F(RuntimeTest, AGraphIsReplayedAsOftenAsItIsLaunched) {
  int replays = 0;
  cudaGraphExec_t const exec = Captured([&] {
    const WorkPtr work = Busy(10, [&](const WorkStart& start) { replays += start.replay ? 1 : 0; });
    EXPECT_EQ(Gpu::Get().Put(stream_, work), cudaSuccess);
  });
  ASSERT_EQ(cudaGraphUpload(exec, stream_), cudaSuccess);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
  EXPECT_EQ(replays, 0);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(replays, 3);
  // One that is destroyed while it is pending still runs.
  ASSERT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
  EXPECT_EXIT(cudaGraphLaunch(exec, nullptr), ::testing::ExitedWithCode(2), "on another stream");
  ASSERT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaErrorInvalidValue);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(replays, 4);
}

TEST_F(RuntimeTest, AnUploadSpoilsACaptureAndNeedsAStream) {
  cudaGraphExec_t const exec = Captured([] {});
  cudaStream_t gone = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&gone, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(gone), cudaSuccess);
  EXPECT_EQ(cudaGraphUpload(exec, gone), cudaErrorInvalidResourceHandle);
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(cudaGraphUpload(exec, stream_), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
  ASSERT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
}

TEST_F(RuntimeTest, AStreamIsDestroyedBeforeItsWorkRuns) {
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  int ran = 0;
  ASSERT_EQ(Gpu::Get().Put(other, Busy(3'600'000'000'000, [&](const WorkStart&) { ++ran; })),
            cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(other), cudaSuccess);
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(cudaStreamSynchronize(other), cudaErrorInvalidResourceHandle);
  const int64_t before = Gpu::Get().NowNs();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(ran, 1);
  EXPECT_GE(Gpu::Get().NowNs() - before, 3'500'000'000'000);
}

TEST_F(RuntimeTest, ACapturedEventHasNoTime) {
  std::array<cudaEvent_t, 2> events = {};
  for (cudaEvent_t& event : events) ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  cudaGraphExec_t const exec = Captured([&] {
    for (cudaEvent_t event : events) EXPECT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
  });
  ASSERT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, events[0], events[1]), cudaErrorCapturedEvent);
  // Recorded again, outside, it has.
  for (cudaEvent_t event : events) ASSERT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, events[0], events[1]), cudaSuccess);
  // What the newest record says counts, also on another stream.
  ASSERT_EQ(cudaEventRecord(events[1], stream_), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(events[1], nullptr), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, events[0], events[1]), cudaErrorNotReady);
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  // A record that fails changes nothing.
  EXPECT_EQ(cudaEventRecord(events[1], reinterpret_cast<cudaStream_t>(7)),
            cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, events[0], events[1]), cudaSuccess);
  for (cudaEvent_t event : events) EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
}

TEST_F(RuntimeTest, AnIdNeedsRoom) {
  std::array<char, 13> id = {};
  EXPECT_EQ(cudaDeviceGetPCIBusId(id.data(), 12, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceGetPCIBusId(id.data(), 13, 0), cudaSuccess);
  EXPECT_STREQ(id.data(), "0000:01:00.0");
}

void CheckThatWorkRunsEarly() {
  int ran = 0;
  const auto put = [&](int64_t ns, bool waits_for_host) {
    Work work = {[&ran, ns](const WorkStart& start) -> WorkEnd {
      ++ran;
      return {start.ns + ns};
    }};
    work.waits_for_host = waits_for_host;
    EXPECT_EQ(Gpu::Get().Put(nullptr, std::make_shared<Work>(std::move(work))), cudaSuccess);
  };
  put(3'600'000'000'000, false);
  EXPECT_EQ(ran, 1);
  // An event behind it is nevertheless not reached before its time.
  cudaEvent_t event = nullptr;
  EXPECT_EQ(cudaEventCreate(&event), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event, nullptr), cudaSuccess);
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, event, event), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, event, event), cudaSuccess);
  put(1, true);
  put(1, false);
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(ran, 3);
}

// In a new process, which reads the setting.
TEST(RunsEarlyTest, WorkDoesNotWaitForTheHost) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("SIMGPU_RUNS_EARLY", "1", 1);
  IN_ANOTHER_PROCESS(CheckThatWorkRunsEarly());
  unsetenv("SIMGPU_RUNS_EARLY");
  GTEST_FLAG_SET(death_test_style, "fast");
}

TEST_F(RuntimeTest, TheQueuesDepthIsTheLastThatDoesNotWait) {
  int ran = 0;
  const WorkPtr work = Busy(1, [&](const WorkStart&) { ++ran; });
  for (int i = 0; i < 1024; ++i) ASSERT_EQ(Gpu::Get().Put(stream_, work), cudaSuccess);
  EXPECT_EQ(ran, 0);
  ASSERT_EQ(Gpu::Get().Put(stream_, work), cudaSuccess);
  EXPECT_EQ(ran, 1024);
}

TEST_F(RuntimeTest, WhatACaptureForbidsSpoilsIt) {
  void* const data = Malloc(512);
  void* more = nullptr;
  const std::vector<std::function<cudaError_t()>> forbidden = {
      [&] { return cudaStreamSynchronize(stream_); },
      [] { return cudaStreamSynchronize(nullptr); },  // of another one
      [] { return cudaDeviceSynchronize(); },
      [&] { return cudaMalloc(&more, 512); },
      [&] { return cudaFree(data); },
      [&] { return cudaMemcpy(data, "text", 5, cudaMemcpyHostToDevice); },
      [&] { return cudaMemcpyAsync(data, "text", 5, cudaMemcpyHostToDevice, stream_); },
  };
  for (const auto& call : forbidden) {
    ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(call(), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(cudaMemsetAsync(data, 0, 4, stream_), cudaErrorStreamCaptureInvalidated);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }
  // A relaxed capture allows what does not concern its stream.
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
  // The whole GPU has this stream.
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
}

TEST_F(RuntimeTest, AForkThatNeverJoinsIsNoGraph) {
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  Gpu::Get().ForkCapture(stream_);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureUnjoined);
}

TEST_F(RuntimeTest, NoiseIsTheSeeds) {
  double sum = 0;
  double largest = 0;
  for (int i = 0; i < 10'000; ++i) {
    const double off = Gpu::Get().Noise("a key", 0.01) - 1;
    sum += off;
    largest = std::max(largest, std::abs(off));
  }
  EXPECT_NEAR(sum / 10'000, 0, 0.0005);
  EXPECT_GT(largest, 0.02);
  EXPECT_LT(largest, 0.04);
}

TEST(L2CacheTest, WhatWasUsedLeastRecentlyLeavesFirst) {
  constexpr int64_t kLine = L2Cache::kLineBytes;
  L2Cache cache(4 * kLine);
  const auto line = [](int number, int count = 1) {
    return Span{reinterpret_cast<const void*>(uintptr_t{1} * number * kLine), count * kLine};
  };
  EXPECT_EQ(cache.Touch(line(1, 4)), 4 * kLine);
  EXPECT_EQ(cache.Touch(line(1)), 0);
  // 2 is now the oldest.
  EXPECT_EQ(cache.Touch(line(9)), kLine);
  EXPECT_EQ(cache.Missing(line(2)), kLine);
  EXPECT_EQ(cache.Missing(line(1)), 0);
  EXPECT_EQ(cache.Missing(line(3, 2)), 0);
  // Of what is larger than the cache its end stays, which a second reading drives out.
  EXPECT_EQ(cache.Touch(line(20, 6)), 6 * kLine);
  EXPECT_EQ(cache.Missing(line(22, 4)), 0);
  EXPECT_EQ(cache.Missing(line(21)), kLine);
  EXPECT_EQ(cache.Touch(line(20, 6)), 6 * kLine);
}

}  // namespace
}  // namespace convtune::simgpu
