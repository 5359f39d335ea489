// The snapshot: the choices that unmodified programs are served, in one
// immutable file. Byte layout and reader. Freestanding, like keys.h. The structs
// are the format, field by field; README.md has the rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "db/snapshot/keys.h"
#include "proto/model/tuning/note_rules.h"

namespace convtune::snapshot {

// Files in the snapshot folder (CONVTUNE_SNAPSHOT, by default
// <state dir>/snapshot), which may be mounted into containers by itself.
inline constexpr char kSnapshotFile[] = "current.snapshot";
inline constexpr char kDatagramSocket[] = "datagrams.sock";
inline constexpr char kKillSwitchFile[] = "disabled";

inline constexpr char kSnapshotMagic[8] = {'C', 'V', 'T', 'S', 'N', 'A', 'P', '\n'};
constexpr uint32_t kSnapshotVersion = 2;

constexpr uint8_t kApiGraph = 2;   // Api::kGraph
constexpr uint8_t kApiLegacy = 3;  // Api::kLegacy
constexpr uint8_t kDeterministic = 1;

// An engine config of the graph API or a legacy algorithm.
struct SnapshotCandidate {
  uint8_t api;  // kApiGraph, kApiLegacy
  uint8_t knob_count;
  uint8_t flags;  // kDeterministic
  uint8_t reserved;
  int32_t math_type;         // legacy: cudnnMathType_t
  int64_t number;            // engine's global index, or cudnnConvolution*Algo_t
  uint32_t numerical_notes;  // masks of 1 << (cuDNN's note + 1)
  uint32_t behavior_notes;
  int64_t workspace_bytes;
  float time_us;        // median; 0: not timed
  uint32_t knob_begin;  // index into the knobs
};
static_assert(sizeof(SnapshotCandidate) == 40);

// Ordered by type, each type once.
struct SnapshotKnob {
  int32_t type;  // cudnnBackendKnobType_t
  uint32_t reserved;
  int64_t value;
};
static_assert(sizeof(SnapshotKnob) == 16);

// The properties of the stock choice of modes INSTANT and A, which list the same. Nothing is
// known of the other modes' choices; the legacy API's depends on what each call allows.
struct StockChoice {
  uint32_t known;  // 0 or 1; where 0 the rest is 0
  uint32_t numerical_notes;
  uint32_t behavior_notes;
  uint32_t reserved;
  int64_t workspace_bytes;
};
static_assert(sizeof(StockChoice) == 24);

// One problem's portfolio, in the order in which it is to be offered; those of
// the two APIs each in their own order.
struct SnapshotEntry {
  ProblemKey key;
  uint32_t candidate_begin;  // index into the candidates
  uint16_t candidate_count;  // at least 1
  uint8_t evidence;          // Evidence's number
  uint8_t pinned;            // 0 or 1
  uint64_t release;          // the release in which it last changed
  StockChoice stock;
};
static_assert(sizeof(SnapshotEntry) == 360);

struct SnapshotSlot {
  uint32_t tag;             // upper half of the key's hash
  uint32_t entry_plus_one;  // 0: empty
};
static_assert(sizeof(SnapshotSlot) == 8);

// A canary section holds only what differs from the stable one.
enum class Channel : uint32_t { kStable = 0, kCanary = 1 };

struct SnapshotSection {
  EnvironmentKey environment;
  uint32_t channel;
  uint32_t slot_count;  // a power of two above entry_count
  uint64_t slots_offset;
  uint64_t entries_offset;
  uint64_t entry_count;
};
static_assert(sizeof(SnapshotSection) == 144);

// Offsets are from the start of the file and multiples of 8.
struct SnapshotHeader {
  char magic[8];             // kSnapshotMagic
  uint32_t format_version;   // kSnapshotVersion
  uint32_t header_bytes;     // sizeof(SnapshotHeader)
  uint64_t file_bytes;       // the exact size of the file
  uint64_t release;          // number of the promoted release
  uint64_t canary_release;   // 0: none
  uint32_t canary_permille;  // share of processes, 0 to 1000
  uint32_t section_count;
  int64_t created_unix_us;
  uint64_t sections_offset;
  uint64_t candidates_offset;
  uint64_t candidate_count;
  uint64_t knobs_offset;
  uint64_t knob_count;
  uint64_t body_checksum;    // XXH3, 64 bits, of all that follows the header
  uint64_t header_checksum;  // of the header before this field
};
static_assert(sizeof(SnapshotHeader) == 112);

enum class SnapshotError {
  kNone = 0,
  kTooShort,  // less than a header, or less than the header says
  kMagic,
  kVersion,
  kChecksum,
  kLayout,  // an offset, count or number that cannot be
};

inline const char* Describe(SnapshotError error) {
  constexpr const char* kWords[] = {"valid",
                                    "too short",
                                    "not a snapshot",
                                    "of another format version",
                                    "checksum does not match",
                                    "malformed"};
  return kWords[static_cast<int>(error)];
}

// True if a candidate can take the place of the stock choice unasked: it keeps the numerics
// of the stock choice and needs no more workspace.
inline bool IsNeutral(uint32_t candidate_notes, int64_t candidate_workspace, uint32_t stock_notes,
                      int64_t stock_workspace) {
  return KeepsNumerics(candidate_notes, stock_notes) && candidate_workspace <= stock_workspace;
}

// Reads a snapshot that the caller keeps, unchanged, while the view is used.
// Immutable after Open: const use is thread-safe.
class SnapshotView {
 public:
  // Verifies every checksum, offset and index, so that look-ups need not.
  // `data` is aligned to 8 bytes.
  static SnapshotError Open(const void* data, size_t size, SnapshotView* view);

  const SnapshotHeader& header() const { return *reinterpret_cast<const SnapshotHeader*>(base_); }
  uint32_t section_count() const { return header().section_count; }
  const SnapshotSection& section(uint32_t i) const {
    return At<SnapshotSection>(header().sections_offset)[i];
  }
  // Null if the snapshot has no section of this environment and channel.
  const SnapshotSection* FindSection(const EnvironmentKey& environment, Channel channel) const {
    for (uint32_t i = 0; i < section_count(); ++i) {
      if (section(i).channel == static_cast<uint32_t>(channel) &&
          section(i).environment == environment) {
        return &section(i);
      }
    }
    return nullptr;
  }
  const SnapshotEntry& entry(const SnapshotSection& section, uint64_t i) const {
    return At<SnapshotEntry>(section.entries_offset)[i];
  }
  // The entry for the key with the largest alignment that is not above the
  // key's: what was tuned for an alignment serves every stricter one. Null if
  // there is none. `hash` is HashOf(key).
  const SnapshotEntry* Find(const SnapshotSection& section, const ProblemKey& key,
                            uint64_t hash) const {
    const auto* slots = At<SnapshotSlot>(section.slots_offset);
    const uint64_t mask = uint64_t{section.slot_count} - 1;
    const SnapshotEntry* best = nullptr;
    for (uint64_t i = hash & mask; slots[i].entry_plus_one != 0; i = (i + 1) & mask) {
      if (slots[i].tag != static_cast<uint32_t>(hash >> 32)) {
        continue;
      }
      const SnapshotEntry& found = entry(section, slots[i].entry_plus_one - 1);
      if (SameButAlignment(found.key, key) && found.key.alignment <= key.alignment &&
          (best == nullptr || found.key.alignment > best->key.alignment)) {
        best = &found;
      }
    }
    return best;
  }
  // `entry.candidate_count` of them.
  const SnapshotCandidate* candidates(const SnapshotEntry& entry) const {
    return At<SnapshotCandidate>(header().candidates_offset) + entry.candidate_begin;
  }
  // `candidate.knob_count` of them.
  const SnapshotKnob* knobs(const SnapshotCandidate& candidate) const {
    return At<SnapshotKnob>(header().knobs_offset) + candidate.knob_begin;
  }

 private:
  template <typename T>
  const T* At(uint64_t offset) const {
    return reinterpret_cast<const T*>(base_ + offset);
  }
  // True if `count` items of `item` bytes at `offset` lie within the file.
  bool Fits(uint64_t offset, uint64_t count, uint64_t item) const {
    const uint64_t size = header().file_bytes;
    return offset % 8 == 0 && offset >= sizeof(SnapshotHeader) && offset <= size &&
           count <= (size - offset) / item;
  }
  bool PoolsHold() const;
  bool SectionHolds(const SnapshotSection& section) const;

  const unsigned char* base_ = nullptr;
};

inline bool SnapshotView::PoolsHold() const {
  const SnapshotHeader& h = header();
  if (!Fits(h.sections_offset, h.section_count, sizeof(SnapshotSection)) ||
      !Fits(h.candidates_offset, h.candidate_count, sizeof(SnapshotCandidate)) ||
      !Fits(h.knobs_offset, h.knob_count, sizeof(SnapshotKnob)) || h.canary_permille > 1000) {
    return false;
  }
  const auto* candidates = At<SnapshotCandidate>(h.candidates_offset);
  for (uint64_t i = 0; i < h.candidate_count; ++i) {
    if ((candidates[i].api != kApiGraph && candidates[i].api != kApiLegacy) ||
        candidates[i].knob_begin > h.knob_count ||
        candidates[i].knob_count > h.knob_count - candidates[i].knob_begin) {
      return false;
    }
  }
  return true;
}

inline bool SnapshotView::SectionHolds(const SnapshotSection& section) const {
  const uint64_t slots = section.slot_count;
  if (slots == 0 || (slots & (slots - 1)) != 0 || section.entry_count >= slots ||
      section.channel > static_cast<uint32_t>(Channel::kCanary) ||
      !Fits(section.slots_offset, slots, sizeof(SnapshotSlot)) ||
      !Fits(section.entries_offset, section.entry_count, sizeof(SnapshotEntry))) {
    return false;
  }
  uint64_t used = 0;
  const auto* slot = At<SnapshotSlot>(section.slots_offset);
  for (uint64_t i = 0; i < slots; ++i) {
    used += slot[i].entry_plus_one != 0 ? 1 : 0;
    if (slot[i].entry_plus_one > section.entry_count) {
      return false;
    }
  }
  for (uint64_t i = 0; i < section.entry_count; ++i) {
    const SnapshotEntry& e = entry(section, i);
    if (e.candidate_count == 0 || e.candidate_begin > header().candidate_count ||
        e.candidate_count > header().candidate_count - e.candidate_begin) {
      return false;
    }
  }
  // At least one slot is empty: every search ends.
  return used == section.entry_count;
}

inline SnapshotError SnapshotView::Open(const void* data, size_t size, SnapshotView* view) {
  SnapshotView result;
  result.base_ = static_cast<const unsigned char*>(data);
  if (size < sizeof(SnapshotHeader)) {
    return SnapshotError::kTooShort;
  }
  const SnapshotHeader& h = result.header();
  if (memcmp(h.magic, kSnapshotMagic, sizeof kSnapshotMagic) != 0) {
    return SnapshotError::kMagic;
  }
  if (h.format_version != kSnapshotVersion) {
    return SnapshotError::kVersion;
  }
  if (XXH3_64bits(&h, offsetof(SnapshotHeader, header_checksum)) != h.header_checksum) {
    return SnapshotError::kChecksum;
  }
  if (h.header_bytes != sizeof(SnapshotHeader)) {
    return SnapshotError::kLayout;
  }
  if (h.file_bytes != size) {
    return size < h.file_bytes ? SnapshotError::kTooShort : SnapshotError::kLayout;
  }
  if (XXH3_64bits(result.base_ + sizeof h, size - sizeof h) != h.body_checksum) {
    return SnapshotError::kChecksum;
  }
  if (!result.PoolsHold()) {
    return SnapshotError::kLayout;
  }
  for (uint32_t i = 0; i < h.section_count; ++i) {
    if (!result.SectionHolds(result.section(i))) {
      return SnapshotError::kLayout;
    }
  }
  *view = result;
  return SnapshotError::kNone;
}

}  // namespace convtune::snapshot
