#include "server/worker/cudnn/legacy_notes.h"

#include <limits>

namespace convtune::worker::cudnn {
std::string LegacyObstacle(const ConvProblem& problem) {
  if (!problem.epilogue().empty()) {
    return "the legacy API is asked for no epilogue";
  }
  if (problem.data_type() == DataType::kE4M3 || problem.data_type() == DataType::kE5M2) {
    return "the legacy API has no fp8";
  }
  if (!problem.symmetric_padding()) {
    return "the legacy API has no asymmetric padding";
  }
  if (problem.layout() == TensorLayout::kStrided) {
    return "the legacy API's filters are packed NCHW or NHWC";
  }
  if (problem.sm_count_target() != 0) {
    return "the legacy API has no SM-count target";
  }
  for (const std::vector<int64_t>* values :
       {&problem.x_dims(), &problem.w_dims(), &problem.y_dims(), &problem.x_strides(),
        &problem.y_strides(), &problem.pad_low(), &problem.strides(), &problem.dilations()}) {
    for (const int64_t value : *values) {
      if (value > std::numeric_limits<int>::max()) {
        return "the legacy API's sizes and strides are 32-bit";
      }
    }
  }
  return "";
}

}  // namespace convtune::worker::cudnn
