// How long an execution takes on the simulated GPU. The model is made up: it claims the time of no
// real kernel. It is there so that candidates differ, and some hardly do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tests/simgpu/cudnn/program.h"
#include "tests/simgpu/runtime/gpu.h"

namespace convtune::simgpu {

// Memory that an execution touched, by where it was found.
struct Traffic {
  int64_t missed_bytes = 0;  // not in the L2 cache
  int64_t hit_bytes = 0;
};

// From 1 to 4, the same for the same seed, engine, config and class of problem: operation, types,
// filter and channels. In steps, so that one config in a few ties with another within 1%.
double SlownessOf(const Program& program, std::string_view engine, std::string_view config,
                  uint64_t seed);

// A roofline at the boost clock: the multiply-adds at the rate of tensor cores or of the others, or
// the memory's or the cache's time if that is longer; times the slowness, and 2 us. The rates
// are per SM and clock, after NVIDIA's white papers of the architectures.
double MicrosecondsOf(const Program& program, bool tensor_cores, const Traffic& traffic,
                      double slowness, const GpuProfile& gpu);

}  // namespace convtune::simgpu
