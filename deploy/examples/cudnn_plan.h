// Builds a cuDNN execution plan from an answer of libconvtune.
#pragma once

#include <convtune/resolver.h>
#include <cudnn.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "convolution.h"

namespace example {

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
  // A tensor in memory, and the graph's id of it.
  struct Memory {
    std::int64_t id = 0;
    std::int64_t bytes = 0;
  };
  std::vector<Descriptor> parts;
  Descriptor plan;
  std::int64_t workspace_bytes = 0;
  // x, w, y, then what the epilogue adds, in its order.
  std::vector<Memory> tensors;
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

// Puts the plan into the handle's stream, on device memory for each of
// plan.tensors in their order, and of plan.workspace_bytes. Throws
// std::runtime_error in cuDNN's words. REQUIRES: device.handle.
void Execute(const Device& device, const Plan& plan, const std::vector<void*>& tensors,
             void* workspace);

// Waits for what was put into the GPU's streams; throws if it failed.
void Synchronize();

}  // namespace example
