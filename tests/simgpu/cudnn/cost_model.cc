#include "tests/simgpu/cudnn/cost_model.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace convtune::simgpu {
namespace {

constexpr double kLaunchUs = 2;
constexpr double kSteps = 40;
constexpr double kTie = 0.004;  // configs of one step differ by less

// Multiply-adds of one SM in one clock.
double Rate(DataType type, bool tensor_cores, int cc_major) {
  const double half = cc_major >= 9 ? 2048 : cc_major >= 8 ? 1024 : 512;
  switch (type) {
    case DataType::kF64:
      return tensor_cores ? half / 16 : 64;
    case DataType::kF32:
      return tensor_cores ? half / 2 : 128;
    case DataType::kF16:
    case DataType::kBF16:
      return tensor_cores ? half : 256;
    default:
      return tensor_cores ? half * 2 : 512;
  }
}

double Fraction(uint64_t hash) { return static_cast<double>(hash >> 11) * 0x1p-53; }

}  // namespace

double SlownessOf(const Program& program, std::string_view engine, std::string_view config,
                  uint64_t seed) {
  const Convolution& conv = program.convolution;
  std::string key =
      absl::StrCat(static_cast<int>(conv.operation), ";", static_cast<int>(conv.x.type), ";");
  for (const int64_t dim : conv.w.dims) absl::StrAppend(&key, dim, ",");
  const double of_engine = Fraction(HashOf(key + std::string(engine), seed));
  const uint64_t hash = HashOf(key + std::string(config), seed + 1);
  const double of_config = std::floor(Fraction(hash) * kSteps) / kSteps;
  return (1 + of_engine * of_engine) * (1 + of_config * of_config) *
         (1 + kTie * Fraction(HashOf(key + std::string(config), seed + 2)));
}

double MicrosecondsOf(const Program& program, bool tensor_cores, const Traffic& traffic,
                      double slowness, const GpuProfile& gpu) {
  const double rate = Rate(program.convolution.x.type, tensor_cores, gpu.cc_major) * gpu.sm_count *
                      gpu.sm_clock_mhz;
  const double computing = program.convolution.MultiplyAdds() / rate;
  const double moving =
      1e6 * (static_cast<double>(traffic.missed_bytes) / gpu.memory_bytes_per_second +
             static_cast<double>(traffic.hit_bytes) / gpu.l2_bytes_per_second);
  return std::max(computing, moving) * slowness + kLaunchUs;
}

}  // namespace convtune::simgpu
