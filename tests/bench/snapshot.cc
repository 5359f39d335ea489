// What a look-up in the snapshot costs in a program's process, beside a raw
// open-addressing table over the same keys; and what it costs to make, to write
// and to take up a snapshot. Prints one JSON object per line.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "db/snapshot/key_convert.h"
#include "db/snapshot/snapshot_writer.h"
#include "tests/bench/figure.h"

namespace convtune::bench {
namespace {

using snapshot::ProblemKey;

snapshot::SnapshotChoice ChoiceOf(ConvProblem problem) {
  snapshot::SnapshotChoice choice(std::move(problem));
  for (int i = 0; i < 3; ++i) {
    Candidate candidate;
    candidate.id = EngineConfig{10 + i, {{2, i}, {13, 1}, {14, 3}}};
    candidate.status = CandidateStatus::kTimed;
    candidate.workspace_bytes = i << 20;
    candidate.median_us = 20 + i;
    choice.candidates.push_back(std::move(candidate));
  }
  choice.evidence = Evidence::kMeasured;
  choice.release = 1;
  choice.stock = snapshot::StockChoice{1, 2, 16, 0, 0};
  return choice;
}

// The baseline: keys and values side by side, found by the same hash of the
// same bytes.
class RawTable {
 public:
  explicit RawTable(const std::vector<ProblemKey>& keys) {
    size_t slots = 1;
    while (slots < 2 * keys.size()) slots *= 2;
    slots_.resize(slots);
    for (uint32_t i = 0; i < keys.size(); ++i) {
      uint64_t place = snapshot::HashOf(keys[i]) & (slots - 1);
      while (slots_[place].used) place = (place + 1) & (slots - 1);
      slots_[place] = {keys[i], true, i};
    }
  }

  // -1 if it is not there.
  int64_t Find(const ProblemKey& key) const {
    for (uint64_t i = snapshot::HashOf(key) & (slots_.size() - 1); slots_[i].used;
         i = (i + 1) & (slots_.size() - 1)) {
      if (std::memcmp(&slots_[i].key, &key, sizeof key) == 0) return slots_[i].value;
    }
    return -1;
  }

 private:
  struct Slot {
    ProblemKey key;
    bool used = false;
    uint32_t value = 0;
  };
  std::vector<Slot> slots_;
};

// Nanoseconds of one call, over all keys once, in their order.
template <typename Call>
double Slice(const std::vector<ProblemKey>& keys, const Call& call) {
  uint64_t found = 0;
  const double seconds = Seconds([&] {
    for (const ProblemKey& key : keys) found += call(key) ? 1 : 0;
  });
  if (found != 0 && found != keys.size()) std::abort();  // all are there, or none
  return 1e9 * seconds / static_cast<double>(keys.size());
}

void Measure(const snapshot::SnapshotView& view, const RawTable& raw, const std::string& at,
             const std::vector<ProblemKey>& asked, const char* figure) {
  const snapshot::SnapshotSection& section = view.section(0);
  std::vector<double> own, bare, ratio;
  for (int round = -2; round < 15; ++round) {
    const double a = Slice(asked, [&](const ProblemKey& key) {
      return view.Find(section, key, snapshot::HashOf(key)) != nullptr;
    });
    const double b = Slice(asked, [&](const ProblemKey& key) { return raw.Find(key) >= 0; });
    if (round < 0) continue;
    own.push_back(a);
    bare.push_back(b);
    ratio.push_back(a / b);
  }
  Print(figure, at, Median(own), Median(bare), Median(ratio));
}

int Run(int64_t choices, const std::string& folder) {
  const std::string at = absl::StrCat("\"choices\": ", choices);
  const Environment environment = Environment::Parse(kEnvironment).value();
  const std::string path = folder + "/" + snapshot::kSnapshotFile;
  std::vector<ProblemKey> keys;
  {
    const absl::Time start = absl::Now();
    snapshot::SnapshotWriter writer({.release = 1, .created = absl::Now()});
    for (int64_t n = 0; n < choices; ++n) {
      ConvProblem problem = ProblemOf(n);
      keys.push_back(snapshot::ToKey(problem).value());
      const absl::Status added =
          writer.Add(environment, snapshot::Channel::kStable, ChoiceOf(std::move(problem)));
      if (!added.ok()) return 1;
    }
    const absl::Time made = absl::Now();
    if (const absl::Status written = writer.Write(path); !written.ok()) {
      std::fprintf(stderr, "%s\n", written.ToString().c_str());
      return 1;
    }
    Print("snapshot_collect_s", at, absl::ToDoubleSeconds(made - start));
    Print("snapshot_write_s", at, absl::ToDoubleSeconds(absl::Now() - made));
  }
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  Print("snapshot_write_peak_mib", at, static_cast<double>(usage.ru_maxrss) / 1024);
  const absl::Time start = absl::Now();
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size = static_cast<size_t>(file.tellg());
  std::vector<uint64_t> bytes((size + 7) / 8);
  file.seekg(0).read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  const absl::Time read = absl::Now();
  snapshot::SnapshotView view;
  if (snapshot::SnapshotView::Open(bytes.data(), size, &view) != snapshot::SnapshotError::kNone) {
    return 1;
  }
  Print("snapshot_bytes_per_choice", at, static_cast<double>(size) / double(choices));
  Print("snapshot_read_s", at, absl::ToDoubleSeconds(read - start));
  Print("snapshot_verify_s", at, absl::ToDoubleSeconds(absl::Now() - read));

  const RawTable raw(keys);
  std::mt19937 random(1);
  std::shuffle(keys.begin(), keys.end(), random);
  keys.resize(std::min<size_t>(keys.size(), 20000));
  Measure(view, raw, at, keys, "snapshot_hit_ns");
  for (ProblemKey& key : keys) key.groups = 7;  // none has it
  Measure(view, raw, at, keys, "snapshot_miss_ns");
  return 0;
}

}  // namespace
}  // namespace convtune::bench

int main(int argc, char** argv) {
  CLI::App app("Look-ups in a snapshot beside a raw table, and what publishing one costs.");
  int64_t choices = 10'000;
  std::string folder;
  app.add_option("--choices", choices, "how many the snapshot has")
      ->check(CLI::Range(1, 4'000'000));
  app.add_option("--folder", folder, "for the file")->required();
  CLI11_PARSE(app, argc, argv);
  return convtune::bench::Run(choices, folder);
}
