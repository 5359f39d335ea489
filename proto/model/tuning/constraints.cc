#include "proto/model/tuning/constraints.h"

namespace convtune {
namespace {

constexpr uint32_t kWinogradNotes =
    NoteBit(NumericalNote::kWinograd) | NoteBit(NumericalNote::kWinogradTile4x4) |
    NoteBit(NumericalNote::kWinogradTile6x6) | NoteBit(NumericalNote::kWinogradTile13x13);
constexpr uint32_t kTf32Notes =
    NoteBit(NumericalNote::kTensorCore) | NoteBit(NumericalNote::kDownConvertInputs);

}  // namespace

bool Satisfies(const Candidate& candidate, const Constraints& constraints, DataType data_type) {
  if (!candidate.usable()) return false;
  const uint32_t notes = candidate.numerical_notes;
  if (constraints.max_workspace_bytes &&
      candidate.workspace_bytes > *constraints.max_workspace_bytes) {
    return false;
  }
  if (constraints.deterministic && !candidate.deterministic()) return false;
  // Tensor cores take f32 inputs only after narrowing them.
  if (constraints.forbid_tf32 && data_type == DataType::kF32 && (notes & kTf32Notes) != 0) {
    return false;
  }
  if (constraints.forbid_down_convert && candidate.has(NumericalNote::kDownConvertInputs)) {
    return false;
  }
  if (constraints.forbid_winograd && (notes & kWinogradNotes) != 0) return false;
  if (constraints.forbid_fft && candidate.has(NumericalNote::kFft)) return false;
  if (constraints.forbid_reduced_precision_reduction &&
      candidate.has(NumericalNote::kReducedPrecisionReduction)) {
    return false;
  }
  if (constraints.api != Api::kAny && ApiOf(candidate.id) != constraints.api) return false;
  // As floats, which is how records keep an error: the answer is the same after a restart.
  if (constraints.max_error &&
      !(candidate.error &&
        static_cast<float>(*candidate.error) <= static_cast<float>(*constraints.max_error))) {
    return false;
  }
  return constraints.launch != LaunchMode::kGraphCapture || candidate.capturable();
}

}  // namespace convtune
