// The errata, engines of cuDNN that are known to give wrong results or to fail, as a table that the
// daemon and the interposer share. Freestanding: no library but libc.
#pragma once

#include <cstdint>

#include "proto/model/enums.h"

namespace convtune {

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
