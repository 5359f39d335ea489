// What the worker does with memory and after failures, on the simulated GPU's runtime.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "server/worker/cudnn/cudnn_status.h"
#include "server/worker/device/device_memory.h"
#include "tests/simgpu/runtime/gpu.h"

namespace convtune::worker::device {
namespace {

class RecoveryTest : public testing::Test {
 protected:
  RecoveryTest() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  ~RecoveryTest() override { cudaStreamDestroy(stream_); }

  cudaStream_t stream_ = nullptr;
};

TEST_F(RecoveryTest, ACaptureThatWasLeftOpenIsEnded) {
  for (const bool spoilt : {false, true}) {
    ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(spoilt ? cudaStreamSynchronize(stream_) : cudaErrorStreamCaptureUnsupported,
              cudaErrorStreamCaptureUnsupported);
    cudnn::Recover(stream_);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_TRUE(DeviceBuffer::Allocate(256).ok());
  }
}

TEST_F(RecoveryTest, AnErrorThatDestroysNothingIsCleared) {
  EXPECT_FALSE(DeviceBuffer::Allocate(int64_t{1} << 50).ok());
  EXPECT_EQ(cudaFree(&stream_), cudaErrorInvalidValue);
  cudnn::Recover(stream_);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(RecoveryTest, ALostContextEndsTheProcess) {
  EXPECT_EXIT(
      {
        simgpu::Gpu::Get().Lose(cudaErrorIllegalAddress);
        cudnn::Recover(stream_);
      },
      testing::KilledBySignal(SIGABRT), "the CUDA context is lost: cudaErrorIllegalAddress");
}

TEST_F(RecoveryTest, ACaptureThatNobodyCanEndEndsTheProcessByItsName) {
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  EXPECT_EXIT(
      {
        cudaStreamBeginCapture(other, cudaStreamCaptureModeThreadLocal);
        cudnn::Recover(stream_);
      },
      testing::KilledBySignal(SIGABRT), "a capture was left open on a stream of cuDNN");
  cudaStreamDestroy(other);
}

TEST_F(RecoveryTest, WhatIsUploadedMayEndAtOnce) {
  absl::StatusOr<DeviceBuffer> buffer = DeviceBuffer::Allocate(5);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  auto bytes = std::make_unique<std::string>("right");
  EXPECT_TRUE(Upload(*bytes, buffer->data(), stream_).ok());
  *bytes = "wrong";
  std::string read(5, '\0');
  EXPECT_EQ(cudaMemcpyAsync(read.data(), buffer->data(), 5, cudaMemcpyDeviceToHost, stream_),
            cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(read, "right");
}

TEST(FillWithTest, RepeatsTheBlockUpToTheLastByte) {
  const std::string block = "abcdefg";
  for (const int64_t bytes : {1, 6, 7, 8, 14, 15, 99, 7 << 10}) {
    absl::StatusOr<DeviceBuffer> buffer = DeviceBuffer::Allocate(bytes);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    ASSERT_EQ(FillWith(block, &*buffer), absl::OkStatus());
    std::string memory(static_cast<size_t>(bytes), '?');
    ASSERT_EQ(cudaMemcpy(memory.data(), buffer->data(), memory.size(), cudaMemcpyDeviceToHost),
              cudaSuccess);
    for (size_t i = 0; i < memory.size(); ++i) {
      ASSERT_EQ(memory[i], block[i % block.size()]) << i << " of " << bytes;
    }
  }
  DeviceBuffer none;
  EXPECT_EQ(FillWith(block, &none), absl::OkStatus());
}

}  // namespace
}  // namespace convtune::worker::device
