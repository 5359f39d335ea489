#include "proto/model/legacy_notes.h"

#include <algorithm>
#include <string>
#include <vector>

namespace convtune {
namespace {

// cudnnMathType_t.
constexpr int kDefaultMath = 0;
constexpr int kTensorOpMath = 1;
constexpr int kTensorOpMathAllowConversion = 2;

uint32_t MathNotes(DataType data_type, int math_type) {
  const bool f32 = data_type == DataType::kF32;
  switch (math_type) {
    case kTensorOpMath:
      return NoteBit(NumericalNote::kTensorCore);
    case kTensorOpMathAllowConversion:
      return NoteBit(NumericalNote::kTensorCore) |
             (f32 ? NoteBit(NumericalNote::kDownConvertInputs) : 0U);
    case kDefaultMath:
      return f32 ? NoteBit(NumericalNote::kTensorCore) : 0U;
    default:
      return 0;
  }
}

// Tiles are named after the transform of the input, as in the graph API's notes:
// 4x4 makes outputs of 2x2 with a filter of 3x3, as the graph API's engines 12
// and 19 do; 6x6 ones of 4x4 with 3x3 and 13x13 ones of 9x9 with 5x5, which are
// the two kinds of kernels that cuDNN has for WINOGRAD_NONFUSED in all three
// operations (winograd_nonfused::winogradForwardData4x4, ...Data9x9_5x5).
uint32_t WinogradNotes(bool fused, int64_t filter_extent) {
  const NumericalNote tile = fused                ? NumericalNote::kWinogradTile4x4
                             : filter_extent <= 3 ? NumericalNote::kWinogradTile6x6
                                                  : NumericalNote::kWinogradTile13x13;
  return NoteBit(NumericalNote::kWinograd) | NoteBit(tile);
}

// True if sums may be kept in less than f32. cuDNN 9.19 says so of the graph
// engines that are most likely the same kernels: of bwd_data's 25 and
// bwd_filter's 20, which add up with atomics, in f16 and bf16; of bwd_filter's
// 24 and 47, which are deterministic, in f32 too. The kernels of
// WINOGRAD_NONFUSED also come with half as the type that they compute in.
bool MayReduceInLess(Operation operation, DataType data_type, const std::string& name,
                     bool deterministic) {
  if (data_type == DataType::kF64) return false;
  if (operation == Operation::kBwdFilter && name == "ALGO_1") return true;
  if (data_type == DataType::kF32) return false;
  if (name == "WINOGRAD_NONFUSED") return true;
  const bool atomics = name == "ALGO_0" || (operation == Operation::kBwdFilter && name == "ALGO_3");
  return operation != Operation::kFwd && (atomics || !deterministic);
}

}  // namespace

uint32_t LegacyNumericalNotes(Operation operation, DataType data_type, int64_t filter_extent,
                              const LegacyAlgorithm& algorithm, bool deterministic) {
  uint32_t notes = MathNotes(data_type, algorithm.math_type);
  // FFT, FFT_TILING; WINOGRAD, WINOGRAD_NONFUSED.
  const std::string name = LegacyAlgorithmName(operation, algorithm.algorithm);
  if (name.starts_with("FFT")) notes |= NoteBit(NumericalNote::kFft);
  if (name.starts_with("WINOGRAD")) notes |= WinogradNotes(name == "WINOGRAD", filter_extent);
  if (MayReduceInLess(operation, data_type, name, deterministic)) {
    notes |= NoteBit(NumericalNote::kReducedPrecisionReduction);
  }
  if (!deterministic) notes |= NoteBit(NumericalNote::kNondeterministic);
  return notes;
}

uint32_t LegacyNumericalNotes(const ConvProblem& problem, const LegacyAlgorithm& algorithm,
                              bool deterministic) {
  const std::vector<int64_t>& w = problem.w_dims();
  return LegacyNumericalNotes(problem.operation(), problem.data_type(),
                              *std::max_element(w.begin() + 2, w.end()), algorithm, deterministic);
}

}  // namespace convtune
