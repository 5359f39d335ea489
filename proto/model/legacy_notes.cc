#include "proto/model/legacy_notes.h"

#include <string>

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

}  // namespace

uint32_t LegacyNumericalNotes(Operation operation, DataType data_type,
                              const LegacyAlgorithm& algorithm, bool deterministic) {
  uint32_t notes = MathNotes(data_type, algorithm.math_type);
  // FFT, FFT_TILING; WINOGRAD, WINOGRAD_NONFUSED.
  const std::string name = LegacyAlgorithmName(operation, algorithm.algorithm);
  if (name.starts_with("FFT")) notes |= NoteBit(NumericalNote::kFft);
  if (name.starts_with("WINOGRAD")) notes |= NoteBit(NumericalNote::kWinograd);
  if (!deterministic) notes |= NoteBit(NumericalNote::kNondeterministic);
  return notes;
}

}  // namespace convtune
