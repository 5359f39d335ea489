// The snapshot reader, which runs in other people's programs. The first byte
// says whether the checksums are made to hold, so that what lies behind them is
// reached too.
#include "db/snapshot/snapshot.h"

#include <vector>

#include "tests/fuzz/fuzz.h"

using namespace convtune::snapshot;  // NOLINT(google-build-using-namespace)

namespace {

void Seal(unsigned char* file, size_t size) {
  SnapshotHeader header;
  memcpy(&header, file, sizeof header);
  memcpy(header.magic, kSnapshotMagic, sizeof header.magic);
  header.format_version = kSnapshotVersion;
  header.header_bytes = sizeof header;
  header.file_bytes = size;
  header.body_checksum = XXH3_64bits(file + sizeof header, size - sizeof header);
  header.header_checksum = XXH3_64bits(&header, offsetof(SnapshotHeader, header_checksum));
  memcpy(file, &header, sizeof header);
}

// Reads all that a reader may; the sanitizer looks for what lies outside.
void Walk(const SnapshotView& view) {
  uint64_t sum = 0;
  for (uint32_t s = 0; s < view.section_count(); ++s) {
    const SnapshotSection& section = view.section(s);
    convtune::fuzz::Require(
        view.FindSection(section.environment, static_cast<Channel>(section.channel)) != nullptr);
    for (uint64_t e = 0; e < section.entry_count; ++e) {
      const SnapshotEntry& entry = view.entry(section, e);
      const SnapshotEntry* found = view.Find(section, entry.key, HashOf(entry.key));
      convtune::fuzz::Require(found == nullptr || SameButAlignment(found->key, entry.key));
      for (int c = 0; c < entry.candidate_count; ++c) {
        const SnapshotCandidate& candidate = view.candidates(entry)[c];
        for (int k = 0; k < candidate.knob_count; ++k) {
          sum += static_cast<uint64_t>(view.knobs(candidate)[k].value);
        }
      }
      ProblemKey key = entry.key;
      if (Canonicalize(&key)) {
        ProblemKey again = key;
        convtune::fuzz::Require(Canonicalize(&again) && memcmp(&again, &key, sizeof key) == 0);
      }
    }
  }
  convtune::fuzz::Use(sum);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const bool seal = data[0] % 2 == 1;
  const size_t bytes = size - 1;
  std::vector<uint64_t> file((bytes + 7) / 8);
  if (bytes > 0) memcpy(file.data(), data + 1, bytes);
  if (seal && bytes >= sizeof(SnapshotHeader)) {
    Seal(reinterpret_cast<unsigned char*>(file.data()), bytes);
  }
  SnapshotView view;
  if (SnapshotView::Open(file.data(), bytes, &view) == SnapshotError::kNone) Walk(view);
  return 0;
}
