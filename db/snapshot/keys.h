// The binary keys of a convolution problem and of an environment, as snapshots and datagrams carry
// them: all that tells one from another, not a hash of it. Freestanding: no library but libc, no
// exceptions, no allocation, so that the daemon and the interposer share it. The bytes are
// persisted: a change is a new format version (see README.md).
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "proto/model/model_slug.h"
#include "proto/model/problem/tensor_rules.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little-endian");

namespace convtune::snapshot {

constexpr int kMaxRank = kMaxTensorRank;
constexpr int kMaxSpatial = 3;
constexpr int kMaxEpilogue = 4;

// Numbers are those of the model's enumerations (proto/model/enums.h). Forward
// shapes, whatever the operation. Unused elements are 0. Canonical means what
// it means for ConvProblem: equal problems have equal bytes.
struct ProblemKey {
  uint8_t operation;    // 1 fwd, 2 bwd_data, 3 bwd_filter
  uint8_t data_type;    // of the two inputs
  uint8_t output_type;  // of what the operation writes
  uint8_t compute_type;
  uint8_t intermediate_type;  // 0 without an epilogue
  uint8_t mode;               // 1 cross-correlation, 2 convolution
  uint8_t spatial_rank;       // 2 or 3
  uint8_t epilogue_count;
  uint8_t epilogue[kMaxEpilogue];  // 1 add, 2 bias, 3 relu, in the graph's order
  uint16_t alignment;              // bytes, a power of two from 1 to 256
  uint16_t sm_count_target;        // 0: the whole GPU
  int64_t groups;
  int64_t x_dims[kMaxRank];  // N, C, spatial
  int64_t w_dims[kMaxRank];  // K, C/groups, spatial
  int64_t x_strides[kMaxRank];
  int64_t w_strides[kMaxRank];
  int64_t y_strides[kMaxRank];
  int64_t pad_low[kMaxSpatial];
  int64_t pad_high[kMaxSpatial];
  int64_t strides[kMaxSpatial];
  int64_t dilations[kMaxSpatial];
};
static_assert(sizeof(ProblemKey) == 320 && offsetof(ProblemKey, alignment) == 12 &&
              offsetof(ProblemKey, groups) == 16 && offsetof(ProblemKey, dilations) == 296);

// XXH3 with 64 bits over the key with its alignment set to 0: what differs in
// alignment alone has one hash.
inline uint64_t HashOf(const ProblemKey& key) {
  ProblemKey copy = key;
  copy.alignment = 0;
  return XXH3_64bits(&copy, sizeof copy);
}

// Equal in all but alignment.
inline bool SameButAlignment(const ProblemKey& a, const ProblemKey& b) {
  constexpr size_t kBefore = offsetof(ProblemKey, alignment);
  constexpr size_t kAfter = offsetof(ProblemKey, sm_count_target);
  const auto* bytes_a = reinterpret_cast<const unsigned char*>(&a);
  const auto* bytes_b = reinterpret_cast<const unsigned char*>(&b);
  return memcmp(bytes_a, bytes_b, kBefore) == 0 &&
         memcmp(bytes_a + kAfter, bytes_b + kAfter, sizeof(ProblemKey) - kAfter) == 0;
}

namespace key_internal {

// Dims from 1 to 2^31-1, at most 2^48 elements.
inline bool DimsInRange(const int64_t* dims, int rank) {
  int64_t elements = 1;
  for (int i = 0; i < rank; ++i) {
    if (dims[i] < 1 || dims[i] > kMaxDim || __builtin_mul_overflow(elements, dims[i], &elements) ||
        elements > kMaxElements) {
      return false;
    }
  }
  return true;
}

inline bool AllWithin(const int64_t* values, int count, int64_t low, int64_t high) {
  for (int i = 0; i < count; ++i) {
    if (values[i] < low || values[i] > high) {
      return false;
    }
  }
  return true;
}

}  // namespace key_internal

// Dimensions of the forward output (N, K, spatial) into y_dims. False if the
// key's numbers are out of the model's range or the output vanishes.
inline bool OutputDims(const ProblemKey& key, int64_t* y_dims) {
  using key_internal::AllWithin;
  using key_internal::DimsInRange;
  const int spatial = key.spatial_rank;
  if (spatial < 2 || spatial > kMaxSpatial || !DimsInRange(key.x_dims, spatial + 2) ||
      !DimsInRange(key.w_dims, spatial + 2) || !AllWithin(key.pad_low, spatial, 0, kMaxDim) ||
      !AllWithin(key.pad_high, spatial, 0, kMaxDim) ||
      !AllWithin(key.strides, spatial, 1, kMaxDim) ||
      !AllWithin(key.dilations, spatial, 1, kMaxDim)) {
    return false;
  }
  y_dims[0] = key.x_dims[0];
  y_dims[1] = key.w_dims[0];
  for (int i = 0; i < spatial; ++i) {
    y_dims[i + 2] = OutputSize(key.x_dims[i + 2], key.pad_low[i], key.pad_high[i],
                               key.w_dims[i + 2], key.strides[i], key.dilations[i]);
  }
  return DimsInRange(y_dims, spatial + 2);
}

// Brings the strides of a key whose other fields are set into canonical form
// (CanonicalizeStrides). False if the key is out of the model's range.
inline bool Canonicalize(ProblemKey* key) {
  using key_internal::AllWithin;
  int64_t y_dims[kMaxRank] = {};
  if (!OutputDims(*key, y_dims) || key->groups < 1 || key->x_dims[1] % key->groups != 0 ||
      key->w_dims[1] != key->x_dims[1] / key->groups || key->w_dims[0] % key->groups != 0) {
    return false;
  }
  const int rank = key->spatial_rank + 2;
  if (!AllWithin(key->x_strides, rank, 1, kMaxElements) ||
      !AllWithin(key->w_strides, rank, 1, kMaxElements) ||
      !AllWithin(key->y_strides, rank, 1, kMaxElements)) {
    return false;
  }
  CanonicalizeStrides(
      {{key->x_dims, key->x_strides}, {key->w_dims, key->w_strides}, {y_dims, key->y_strides}},
      rank);
  return true;
}

constexpr size_t kMaxModelSlug = 63;

// See proto/model/environment.h.
struct EnvironmentKey {
  uint8_t profile;  // 1: a device-properties profile, not a GPU
  uint8_t library;  // 0 unknown, 1 full, 2 graph_jit_only
  uint8_t cc_major;
  uint8_t cc_minor;
  uint32_t sm_count;
  uint32_t cudnn_version;             // as cudnnGetVersion gives it: 91900
  uint32_t reserved;                  // 0
  char gpu_model[kMaxModelSlug + 1];  // slug, padded with 0
  char mig_profile[32];               // padded with 0; empty without MIG
};
static_assert(sizeof(EnvironmentKey) == 112 && offsetof(EnvironmentKey, gpu_model) == 16 &&
              offsetof(EnvironmentKey, mig_profile) == 80);

inline bool operator==(const EnvironmentKey& a, const EnvironmentKey& b) {
  return memcmp(&a, &b, sizeof a) == 0;
}

// Sets the slug of a GPU's name (WriteSlug). False if it is empty or too long.
inline bool SetModelSlug(const char* name, size_t length, EnvironmentKey* key) {
  memset(key->gpu_model, 0, sizeof key->gpu_model);
  return WriteSlug(name, length, key->gpu_model, kMaxModelSlug) > 0;
}

}  // namespace convtune::snapshot
