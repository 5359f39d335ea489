// The rules of a problem's dimensions and strides, and which of several equal
// forms is the canonical one. ConvProblem, the snapshot's key and the interposer
// share them. Freestanding: no library but libc, no exceptions, no allocation.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace convtune {

constexpr int kMaxTensorRank = 5;
constexpr int64_t kMaxDim = 2147483647;
constexpr int64_t kMaxElements = int64_t{1} << 48;

// Size of the output in one spatial dimension; 0 if the dilated filter spans
// more than the padded input.
inline int64_t OutputSize(int64_t size, int64_t pad_low, int64_t pad_high, int64_t filter,
                          int64_t stride, int64_t dilation) {
  const int64_t rest = size + pad_low + pad_high - (dilation * (filter - 1) + 1);
  if (rest < 0) return 0;
  return (stride == 1 ? rest : rest / stride) + 1;
}

// Strides of a packed tensor, NHWC if `channels_last`, else NCHW.
inline void PackedStrides(const int64_t* dims, int rank, bool channels_last, int64_t* strides) {
  int64_t next = 1;
  if (channels_last) {
    strides[1] = 1;
    next = dims[1];
  }
  for (int i = rank - 1; i >= 0; --i) {
    if (i == 1 && channels_last) continue;
    strides[i] = next;
    next *= dims[i];
  }
}

// True if the strides are the packed ones wherever the size is above 1.
inline bool IsPacked(const int64_t* dims, const int64_t* strides, int rank, bool channels_last) {
  int64_t packed[kMaxTensorRank];
  PackedStrides(dims, rank, channels_last, packed);
  for (int i = 0; i < rank; ++i) {
    if (dims[i] > 1 && strides[i] != packed[i]) return false;
  }
  return true;
}

// Replaces the strides of size-1 dimensions, which address nothing, by those of
// the packed layout that the others are nearest to: NHWC if the channels are
// more than one and adjacent and some spatial dimension is above 1, else NCHW.
inline void NormalizeStrides(const int64_t* dims, int rank, int64_t* strides) {
  bool spatial = false;
  for (int i = 2; i < rank; ++i) spatial = spatial || dims[i] > 1;
  int64_t packed[kMaxTensorRank];
  PackedStrides(dims, rank, spatial && dims[1] > 1 && strides[1] == 1, packed);
  for (int i = 0; i < rank; ++i) {
    if (dims[i] == 1) strides[i] = packed[i];
  }
}

struct StridedTensor {
  const int64_t* dims;
  int64_t* strides;
};

enum class Packing { kNone, kNchw, kNhwc };

// Brings the strides of a problem's three tensors into canonical form: of a
// packed layout if all three fit it, NCHW if both fit; else each normalized by
// itself. Returns the layout that fits.
inline Packing CanonicalizeStrides(const StridedTensor (&tensors)[3], int rank) {
  for (const Packing packing : {Packing::kNchw, Packing::kNhwc}) {
    const bool channels_last = packing == Packing::kNhwc;
    bool fits = true;
    for (const StridedTensor& t : tensors) {
      fits = fits && IsPacked(t.dims, t.strides, rank, channels_last);
    }
    if (!fits) continue;
    for (const StridedTensor& t : tensors) PackedStrides(t.dims, rank, channels_last, t.strides);
    return packing;
  }
  for (const StridedTensor& t : tensors) NormalizeStrides(t.dims, rank, t.strides);
  return Packing::kNone;
}

}  // namespace convtune
