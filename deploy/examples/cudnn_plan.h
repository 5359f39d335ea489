// A convolution as libconvtune's answers name it, and a cuDNN execution plan built from an answer.
#pragma once

#include <convtune/resolver.h>
#include <cudnn.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace example {

enum class Operation { kFwd, kBwdData, kBwdFilter };
// Operations on the convolution's output: adding a tensor of its shape, adding a
// bias for each channel, cutting off what is below zero.
enum class Epilogue { kAdd, kBias, kRelu };

struct Tensor {
  std::vector<std::int64_t> dims, strides;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  // From its first element to behind its last, with what lies between elements.
  std::int64_t bytes() const;
};

struct Convolution {
  Operation operation = Operation::kFwd;
  Tensor x, w, y;
  std::vector<std::int64_t> pad_low, pad_high, stride, dilation;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  std::int64_t alignment = 16;
  std::vector<Epilogue> epilogue;                   // in their order
  cudnnDataType_t intermediate = CUDNN_DATA_FLOAT;  // between them
};

// The tensor that kBias adds: y's type, one element for each of y's channels.
Tensor BiasOf(const Convolution& convolution);

// Reads a canonical text, as Result::problem is one. Throws std::runtime_error
// for what this example does not do: a part of the GPU's SMs.
Convolution Parse(const std::string& canonical);

struct DestroyDescriptor {
  using pointer = cudnnBackendDescriptor_t;
  void operator()(pointer descriptor) const { cudnnBackendDestroyDescriptor(descriptor); }
};
using Descriptor = std::unique_ptr<void, DestroyDescriptor>;

// What plans are made for: a GPU, by its handle; or without one a device
// profile. One of the two.
struct Device {
  cudnnHandle_t handle = nullptr;
  Descriptor properties;
};

// A finalised plan, with all that cuDNN wants to live as long. Move-only.
struct Plan {
  std::vector<Descriptor> parts;
  Descriptor plan;
  std::int64_t workspace_bytes = 0;
  // Of each tensor in memory: x, w, y, then what the epilogue adds, in its order.
  std::vector<std::int64_t> tensor_bytes;
};

// For a device profile (see deploy/profiles): its text, or that of its
// "properties" alone. Throws std::runtime_error in cuDNN's words, as does MakePlan.
Device DeviceFromProfile(const std::string& profile);

// Throws std::runtime_error if answers that hold for `environment` mean nothing
// here: engine and knob numbers are those of one cuDNN, and the choice that of one
// GPU. A resolver that was asked before there was a GPU could not tell.
void RequireOwn(const Device& device, const convtune::client::Environment& environment);

// Builds the operation graph of a convolution and its epilogue, and the plan of
// exactly this engine and these knobs. REQUIRES: candidate.graph.
Plan MakePlan(const Device& device, const Convolution& problem,
              const convtune::client::Candidate& candidate);

// Device memory, all zeros. Throws std::runtime_error in CUDA's words.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::int64_t bytes);
  void* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Free> memory_;
};

// Puts the plan into the handle's stream, on device memory of each of
// plan.tensor_bytes in their order, and of plan.workspace_bytes. Throws
// std::runtime_error in cuDNN's words. REQUIRES: device.handle.
void Execute(const Device& device, const Plan& plan, const std::vector<void*>& tensors,
             void* workspace);

// Waits for what was put into the GPU's streams; throws if it failed.
void Synchronize();

}  // namespace example
