// Datagrams from an interposed program to the daemon, by a unix socket beside
// the snapshot, fire and forget. Freestanding, like keys.h. The structs are the
// format, field by field; README.md has the rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "db/snapshot/keys.h"

namespace convtune::snapshot {

inline constexpr char kDatagramMagic[4] = {'C', 'V', 'T', 'D'};
constexpr uint16_t kDatagramVersion = 1;

enum class DatagramKind : uint16_t {
  kMiss = 1,
  kObservedPlan = 2,    // the plan that a program settled on
  kObservedLegacy = 3,  // what a legacy Find call measured
};

// The reason for which a convolution was not served.
enum class UnservedReason : uint32_t {
  kNoEntry = 1,        // the environment is known, the problem is not
  kNoEnvironment = 2,  // no section for this environment
  kNoSnapshot = 3,     // none, or one that cannot be read
  kNotNeutral = 4,     // known, but every candidate is other than the stock choice allows
  kRefused = 5,        // known, but cuDNN did not take the candidates
};
// By their number: what people read.
inline constexpr const char* kUnservedReasons[] = {
    "", "no_entry", "no_environment", "no_snapshot", "not_neutral", "refused"};

struct DatagramHeader {
  char magic[4];     // kDatagramMagic
  uint16_t version;  // kDatagramVersion
  uint16_t kind;     // DatagramKind
  uint32_t bytes;    // of the whole datagram
  uint32_t pid;      // of the sender, in its own namespace
  EnvironmentKey environment;
  ProblemKey problem;
};
static_assert(sizeof(DatagramHeader) == 448);

struct MissDatagram {
  DatagramHeader header;
  uint32_t reason;  // UnservedReason
  uint32_t count;   // occurrences that it stands for, at least 1
};
static_assert(sizeof(MissDatagram) == 456);

constexpr uint32_t kMaxDatagramKnobs = 32;

struct ObservedPlanDatagram {
  DatagramHeader header;
  int64_t engine_index;
  uint32_t knob_count;
  uint32_t numerical_notes;  // masks of 1 << (cuDNN's note + 1)
  uint32_t behavior_notes;
  uint32_t plans_built;  // of this problem, before the program settled
  int64_t workspace_bytes;
  uint64_t executions;  // of the plan, so far
  struct {
    int32_t type;
    uint32_t reserved;
    int64_t value;
  } knobs[kMaxDatagramKnobs];  // ordered by type; the unused are 0
};
static_assert(sizeof(ObservedPlanDatagram) == 1000);

constexpr uint32_t kMaxDatagramResults = 16;

struct ObservedLegacyDatagram {
  DatagramHeader header;
  uint32_t result_count;  // at least 1
  uint32_t reserved;
  struct {
    int32_t algorithm;
    int32_t math_type;
    float time_us;  // above 0
    uint32_t deterministic;
    int64_t workspace_bytes;
  } results[kMaxDatagramResults];  // in the order in which cuDNN gave them
};
static_assert(sizeof(ObservedLegacyDatagram) == 840);

constexpr size_t kMaxDatagramBytes = sizeof(ObservedPlanDatagram);

// The kind of a received datagram whose size, version and counts hold, else 0.
// Nothing is said of the keys' contents: see key_convert.h.
inline uint16_t ReadDatagramKind(const void* data, size_t size) {
  DatagramHeader header;
  if (size < sizeof header) {
    return 0;
  }
  memcpy(&header, data, sizeof header);
  if (memcmp(header.magic, kDatagramMagic, sizeof kDatagramMagic) != 0 ||
      header.version != kDatagramVersion || header.bytes != size) {
    return 0;
  }
  // Of each kind: its size, and where its count is and what it may be.
  constexpr struct {
    DatagramKind kind;
    size_t bytes;
    size_t count_offset;
    uint32_t least;
    uint32_t most;
  } kKinds[] = {
      {DatagramKind::kMiss, sizeof(MissDatagram), offsetof(MissDatagram, count), 1, UINT32_MAX},
      {DatagramKind::kObservedPlan, sizeof(ObservedPlanDatagram),
       offsetof(ObservedPlanDatagram, knob_count), 0, kMaxDatagramKnobs},
      {DatagramKind::kObservedLegacy, sizeof(ObservedLegacyDatagram),
       offsetof(ObservedLegacyDatagram, result_count), 1, kMaxDatagramResults}};
  for (const auto& known : kKinds) {
    if (header.kind != static_cast<uint16_t>(known.kind) || size != known.bytes) continue;
    uint32_t count = 0;
    memcpy(&count, static_cast<const unsigned char*>(data) + known.count_offset, sizeof count);
    return count >= known.least && count <= known.most ? header.kind : 0;
  }
  return 0;
}

}  // namespace convtune::snapshot
