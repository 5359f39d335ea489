// Rules of cuDNN's candidates that the daemon and the interposer share: which numerical notes keep
// the numerics of the stock choice, the notes of the legacy API's algorithms, for which cuDNN
// reports none, and the engines that are known to give wrong results or to fail (errata).
// Freestanding: no library but libc.
#pragma once

#include <cstdint>

#include "proto/model/enums.h"

namespace convtune {

// True if a candidate with these numerical notes gives callers all that the stock choice
// gives them: it has no note that the stock choice lacks (nondeterminism is one), and it
// propagates NaNs strictly where the stock choice does. That note alone is a guarantee; the
// others say what may happen to results.
constexpr bool KeepsNumerics(uint32_t candidate_notes, uint32_t stock_notes) {
  constexpr uint32_t kGuarantees = NoteBit(NumericalNote::kStrictNanProp);
  return (candidate_notes & ~stock_notes & ~kGuarantees) == 0 &&
         (stock_notes & ~candidate_notes & kGuarantees) == 0;
}

namespace legacy_internal {

// cuDNN's numbers of the algorithms that use a transform, by operation (from 1).
constexpr int kFft[] = {-1, 4, 2, 2};
constexpr int kFftTiling[] = {-1, 5, 3, 6};
constexpr int kWinograd[] = {-1, 6, 4, 4};
constexpr int kWinogradNonfused[] = {-1, 7, 5, 5};

// `math_type` is cuDNN's number, cudnnMathType_t.
constexpr uint32_t MathNotes(bool f32, int math_type) {
  constexpr uint32_t kTensorCore = NoteBit(NumericalNote::kTensorCore);
  switch (math_type) {
    case 0:  // the default
      return f32 ? kTensorCore : 0;
    case 1:  // tensor cores
      return kTensorCore;
    case 2:  // tensor cores, with conversion
      return f32 ? kTensorCore | NoteBit(NumericalNote::kDownConvertInputs) : kTensorCore;
    default:
      return 0;
  }
}

// Tiles are named after the transform of the input, as in the graph API's notes:
// 4x4 makes outputs of 2x2 with a filter of 3x3, as the graph API's engines 12
// and 19 do; 6x6 ones of 4x4 with 3x3 and 13x13 ones of 9x9 with 5x5, which are
// the two kinds of kernels that cuDNN has for WINOGRAD_NONFUSED in all three
// operations (winograd_nonfused::winogradForwardData4x4, ...Data9x9_5x5).
constexpr uint32_t WinogradNotes(bool fused, int64_t filter_extent) {
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
constexpr bool MayReduceInLess(Operation operation, DataType data_type, int algorithm,
                               bool deterministic) {
  const bool filter = operation == Operation::kBwdFilter;
  if (data_type == DataType::kF64) return false;
  if (filter && algorithm == 1) return true;
  if (data_type == DataType::kF32) return false;
  if (algorithm == kWinogradNonfused[static_cast<int>(operation)]) return true;
  const bool atomics = algorithm == 0 || (filter && algorithm == 3);
  return operation != Operation::kFwd && (atomics || !deterministic);
}

}  // namespace legacy_internal

// A mask. `filter_extent` is the longest side of the filter, `data_type` that of
// the inputs; `algorithm`, `math_type` and `deterministic` are cuDNN's. Where
// cuDNN is free to choose, the note is set.
constexpr uint32_t LegacyNotes(Operation operation, DataType data_type, int64_t filter_extent,
                               int algorithm, int math_type, bool deterministic) {
  const int place = static_cast<int>(operation);
  uint32_t notes = legacy_internal::MathNotes(data_type == DataType::kF32, math_type);
  if (algorithm == legacy_internal::kFft[place] ||
      algorithm == legacy_internal::kFftTiling[place]) {
    notes |= NoteBit(NumericalNote::kFft);
  }
  const bool fused = algorithm == legacy_internal::kWinograd[place];
  if (fused || algorithm == legacy_internal::kWinogradNonfused[place]) {
    notes |= legacy_internal::WinogradNotes(fused, filter_extent);
  }
  if (legacy_internal::MayReduceInLess(operation, data_type, algorithm, deterministic)) {
    notes |= NoteBit(NumericalNote::kReducedPrecisionReduction);
  }
  if (!deterministic) notes |= NoteBit(NumericalNote::kNondeterministic);
  return notes;
}

// An Erratum is an engine that gives wrong results, or fails, where the conditions hold.
struct Erratum {
  int engine;
  Operation operation;
  int cudnn_begin;   // the first version, as cudnnGetVersion gives it
  int cudnn_end;     // the first version without the fault; 0: none is known
  int sm;            // compute capability without its point; 0: any
  int spatial_rank;  // 2 or 3; 0: any
  const char* reason;

  constexpr bool Concerns(Operation asked, int rank, int cudnn, int device_sm) const {
    return operation == asked && (spatial_rank == 0 || spatial_rank == rank) &&
           cudnn_begin <= cudnn && (cudnn_end == 0 || cudnn < cudnn_end) &&
           (sm == 0 || sm == device_sm);
  }
};

constexpr char kIllegalAccess[] =
    "calls a cuBLASLt kernel that accesses memory it must not, until cuBLAS 13.6.1: "
    "github.com/pytorch/pytorch/pull/190112 and 191701";

// PyTorch has these as rules. They were read on 2026-11-26 from libtorch_cuda.so in PyTorch
// 2.15.0's wheel of 2026-10-28. A new entry goes to the end, since its place is its number.
constexpr Erratum kErrata[] = {
    {5, Operation::kFwd, 92301, 92400, 86, 0,
     "two runs differ: github.com/pytorch/pytorch/issues/188288, pull/189207"},
    {58, Operation::kFwd, 92300, 0, 120, 0, kIllegalAccess},
    {63, Operation::kBwdData, 92300, 0, 120, 0, kIllegalAccess},
    {63, Operation::kBwdFilter, 92300, 0, 120, 0, kIllegalAccess},
    {23, Operation::kFwd, 90800, 91500, 0, 3,
     "wrong results: github.com/pytorch/pytorch/issues/163539"},
    {23, Operation::kBwdData, 8000, 0, 0, 3,
     "numerical faults in tests: github.com/pytorch/pytorch/pull/171747"},
};

}  // namespace convtune
