// The binary key of an environment (see proto/model/environment.h), as
// snapshots and datagrams carry it. Freestanding, like problem_key.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace convtune::snapshot {

constexpr size_t kMaxModelSlug = 63;

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

// Writes the slug of a GPU's name: lower case, runs of anything but letters and
// digits one '-', none at the ends. False if it is empty or too long.
inline bool SetModelSlug(const char* name, size_t length, EnvironmentKey* key) {
  memset(key->gpu_model, 0, sizeof key->gpu_model);
  size_t size = 0;
  bool gap = false;
  for (size_t i = 0; i < length; ++i) {
    char c = name[i];
    if (c >= 'A' && c <= 'Z') {
      c = static_cast<char>(c - 'A' + 'a');
    }
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      if (gap && size > 0) {
        if (size >= kMaxModelSlug) {
          return false;
        }
        key->gpu_model[size++] = '-';
      }
      gap = false;
      if (size >= kMaxModelSlug) {
        return false;
      }
      key->gpu_model[size++] = c;
    } else {
      gap = true;
    }
  }
  return size > 0;
}

}  // namespace convtune::snapshot
