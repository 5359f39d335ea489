// From an answer of libconvtune to a cuDNN execution plan.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/cpp/include/convtune/resolver.h"
#include "proto/model/conv_problem.h"

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
  std::vector<Descriptor> parts;
  Descriptor plan;
  std::int64_t workspace_bytes = 0;
};

// For a profile's "properties" (see deploy/profiles), as JSON without spaces.
// Throws std::runtime_error in cuDNN's words, as does MakePlan.
Device DeviceFromProfile(const std::string& properties);

// Builds the operation graph of a convolution without epilogue, with x, w and y
// under the unique ids 1, 2 and 3, and the plan of exactly this engine and these
// knobs. REQUIRES: choice.graph.
Plan MakePlan(const Device& device, const convtune::ConvProblem& problem,
              const convtune::client::Choice& choice);

}  // namespace example
