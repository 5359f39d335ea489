#include "db/snapshot/snapshot_writer.h"

#include <algorithm>
#include <variant>

#include "db/snapshot/key_convert.h"
#include "proto/base/replace_file.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"

namespace convtune::snapshot {
namespace {

// Adds its knobs to `knobs`.
void Convert(const Candidate& from, SnapshotCandidate* to, std::vector<SnapshotKnob>* knobs) {
  *to = {};
  to->flags = from.deterministic() ? kDeterministic : 0;
  to->numerical_notes = from.numerical_notes;
  to->behavior_notes = from.behavior_notes;
  to->workspace_bytes = from.workspace_bytes;
  to->time_us = static_cast<float>(from.median_us);
  to->knob_begin = static_cast<uint32_t>(knobs->size());
  if (const auto* legacy = std::get_if<LegacyAlgorithm>(&from.id)) {
    to->api = kApiLegacy;
    to->number = legacy->algorithm;
    to->math_type = legacy->math_type;
    return;
  }
  const auto& config = std::get<EngineConfig>(from.id);
  to->api = kApiGraph;
  to->number = config.engine_index;
  to->knob_count = static_cast<uint8_t>(config.knobs.size());
  for (const auto& [type, value] : config.knobs) knobs->push_back({type, 0, value});
}

template <typename T>
uint64_t Append(std::string* bytes, const std::vector<T>& items) {
  const uint64_t offset = bytes->size();
  bytes->append(reinterpret_cast<const char*>(items.data()), items.size() * sizeof(T));
  return offset;
}

template <typename Key>
std::string BytesOf(const Key& key) {
  return {reinterpret_cast<const char*>(&key), sizeof key};
}

std::vector<SnapshotSlot> MakeSlots(const std::vector<SnapshotEntry>& entries) {
  uint64_t count = 2;
  while (count < 2 * entries.size()) {
    count *= 2;
  }
  std::vector<SnapshotSlot> slots(count);
  for (size_t i = 0; i < entries.size(); ++i) {
    const uint64_t hash = HashOf(entries[i].key);
    uint64_t slot = hash & (count - 1);
    while (slots[slot].entry_plus_one != 0) {
      slot = (slot + 1) & (count - 1);
    }
    slots[slot] = {static_cast<uint32_t>(hash >> 32), static_cast<uint32_t>(i + 1)};
  }
  return slots;
}

}  // namespace

absl::Status SnapshotWriter::AddEnvironment(const Environment& environment) {
  ASSIGN_OR_RETURN(const EnvironmentKey key, ToKey(environment));
  sections_[{BytesOf(key), Channel::kStable}];
  return absl::OkStatus();
}

absl::Status SnapshotWriter::Add(const Environment& environment, Channel channel,
                                 const SnapshotChoice& choice) {
  ASSIGN_OR_RETURN(const EnvironmentKey environment_key, ToKey(environment));
  Entry added = {};
  ASSIGN_OR_RETURN(added.entry.key, ToKey(choice.problem));
  for (const Candidate& candidate : choice.candidates) {
    Convert(candidate, &added.candidates.emplace_back(), &added.knobs);
  }
  added.entry.candidate_count = static_cast<uint16_t>(added.candidates.size());
  added.entry.evidence = static_cast<uint8_t>(choice.evidence);
  added.entry.pinned = choice.pinned ? 1 : 0;
  added.entry.release = choice.release;
  added.entry.stock = choice.stock;
  Section& section = sections_[{BytesOf(environment_key), channel}];
  if (!section.emplace(BytesOf(added.entry.key), std::move(added)).second) {
    return absl::AlreadyExistsError(
        Concat("problem: ", choice.problem.ToText(), " is there twice"));
  }
  ++choice_count_;
  return absl::OkStatus();
}

SnapshotWriter::KeySet SnapshotWriter::AddMissing(const SnapshotView& other, const KeySet* among,
                                                  const Wanted& wanted) {
  KeySet added;
  for (uint32_t s = 0; s < other.section_count(); ++s) {
    const SnapshotSection& from = other.section(s);
    const absl::StatusOr<Environment> environment = ToEnvironment(from.environment);
    if (from.channel != static_cast<uint32_t>(Channel::kStable) || !environment.ok()) continue;
    const std::string environment_bytes = BytesOf(from.environment);
    Section& section = sections_[{environment_bytes, Channel::kStable}];
    for (uint64_t e = 0; e < from.entry_count; ++e) {
      Entry entry = {other.entry(from, e), {}, {}};
      std::string problem = BytesOf(entry.entry.key);
      std::string key = environment_bytes + problem;
      if (section.contains(problem)) continue;
      if (among != nullptr && !among->contains(key)) continue;
      const absl::StatusOr<ConvProblem> conv = ToProblem(entry.entry.key);
      if (!conv.ok()) continue;
      const std::optional<Bans> bans = wanted(*environment, *conv, entry.entry);
      if (!bans) continue;
      for (uint32_t c = 0; c < entry.entry.candidate_count; ++c) {
        const SnapshotCandidate& candidate = other.candidates(entry.entry)[c];
        if (bans->Find(ToCandidate(other, candidate).id) != nullptr) continue;
        const SnapshotKnob* knobs = other.knobs(candidate);
        entry.candidates.push_back(candidate);
        entry.candidates.back().knob_begin = static_cast<uint32_t>(entry.knobs.size());
        entry.knobs.insert(entry.knobs.end(), knobs, knobs + candidate.knob_count);
      }
      if (entry.candidates.empty()) continue;
      entry.entry.candidate_count = static_cast<uint16_t>(entry.candidates.size());
      section.emplace(std::move(problem), std::move(entry));
      added.insert(std::move(key));
    }
  }
  choice_count_ += added.size();
  return added;
}

std::string SnapshotWriter::Serialize() const {
  SnapshotHeader header = {};
  std::copy(std::begin(kSnapshotMagic), std::end(kSnapshotMagic), header.magic);
  header.format_version = kSnapshotVersion;
  header.header_bytes = sizeof header;
  header.release = options_.release;
  header.canary_release = options_.canary_release;
  header.canary_permille = options_.canary_permille;
  header.section_count = static_cast<uint32_t>(sections_.size());
  header.created_unix_us = absl::ToUnixMicros(options_.created);

  std::string bytes(sizeof header + sections_.size() * sizeof(SnapshotSection), '\0');
  std::vector<SnapshotSection> sections;
  std::vector<SnapshotCandidate> candidates;
  std::vector<SnapshotKnob> knobs;
  for (const auto& [key, choices] : sections_) {
    std::vector<SnapshotEntry> entries;
    for (const auto& [problem, choice] : choices) {
      entries.push_back(choice.entry);
      entries.back().candidate_begin = static_cast<uint32_t>(candidates.size());
      for (const SnapshotCandidate& candidate : choice.candidates) {
        candidates.push_back(candidate);
        candidates.back().knob_begin += static_cast<uint32_t>(knobs.size());
      }
      knobs.insert(knobs.end(), choice.knobs.begin(), choice.knobs.end());
    }
    const std::vector<SnapshotSlot> slots = MakeSlots(entries);
    SnapshotSection section = {};
    memcpy(&section.environment, key.first.data(), sizeof section.environment);
    section.channel = static_cast<uint32_t>(key.second);
    section.slot_count = static_cast<uint32_t>(slots.size());
    section.entry_count = entries.size();
    section.slots_offset = Append(&bytes, slots);
    section.entries_offset = Append(&bytes, entries);
    sections.push_back(section);
  }
  header.sections_offset = sizeof header;
  if (!sections.empty()) {  // of none there is no address to copy from
    memcpy(bytes.data() + sizeof header, sections.data(),
           sections.size() * sizeof(SnapshotSection));
  }
  header.candidates_offset = Append(&bytes, candidates);
  header.candidate_count = candidates.size();
  header.knobs_offset = Append(&bytes, knobs);
  header.knob_count = knobs.size();
  header.file_bytes = bytes.size();
  header.body_checksum = XXH3_64bits(bytes.data() + sizeof header, bytes.size() - sizeof header);
  header.header_checksum = XXH3_64bits(&header, offsetof(SnapshotHeader, header_checksum));
  memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

absl::Status SnapshotWriter::Write(const std::string& path) const {
  return ReplaceFile(path, Serialize());
}

}  // namespace convtune::snapshot
