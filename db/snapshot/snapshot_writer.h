// A SnapshotWriter builds and writes snapshots (snapshot.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "db/snapshot/snapshot.h"
#include "proto/model/environment.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/ban.h"
#include "proto/model/tuning/candidate.h"

namespace convtune::snapshot {

// One problem's portfolio. Value type.
struct SnapshotChoice {
  explicit SnapshotChoice(ConvProblem p) : problem(std::move(p)) {}

  ConvProblem problem;
  // REQUIRES: from 1 to 65,535, each once, in the order in which they are offered, of either API;
  // knobs ordered by type, at most 255. Of a Candidate only id, notes, workspace_bytes and
  // median_us are kept.
  std::vector<Candidate> candidates;
  Evidence evidence = Evidence::kNone;
  bool pinned = false;
  uint64_t release = 0;  // in which it last changed
  // What is known of the stock choice, the first that mode A lists and that can be finalised.
  StockChoice stock = {};
};

// Collects choices and serialises them: equal choices give equal bytes, in
// whatever order they were added. Not thread-safe.
class SnapshotWriter {
 public:
  struct Options {
    uint64_t release = 0;
    uint64_t canary_release = 0;   // 0: no canary
    uint32_t canary_permille = 0;  // share of processes that get it, 0 to 1000
    absl::Time created = absl::UnixEpoch();
  };

  explicit SnapshotWriter(const Options& options) : options_(options) {}

  // Adds an environment's stable section, so that a snapshot says of it that nothing is known. Add
  // does it too.
  absl::Status AddEnvironment(const Environment& environment);
  // INVALID_ARGUMENT names what of the environment or problem a key cannot hold; ALREADY_EXISTS for
  // a problem that the environment and channel have. Nothing is added then.
  absl::Status Add(const Environment& environment, Channel channel, const SnapshotChoice& choice);

  // An environment's key and a problem's, their bytes one after the other.
  using KeySet = std::set<std::string>;
  // The bans that an entry's candidates are held against; nullopt: it is not wanted.
  using Wanted = std::function<std::optional<Bans>(const Environment&, const ConvProblem&,
                                                   const SnapshotEntry&)>;
  // Adds the stable choices of another snapshot, without banned candidates, for the
  // problems that have none yet, are in `among` (null: all problems are) and wanted, and have a
  // candidate left. Returns their keys.
  KeySet AddMissing(const SnapshotView& other, const KeySet* among, const Wanted& wanted);

  size_t choice_count() const { return choice_count_; }

  std::string Serialize() const;
  // Serialises to a temporary name beside `path`, fsyncs, renames over `path`
  // and fsyncs the folder: a reader finds the old file or the new one. The file
  // is readable by all (mode 0644). Errors name the path.
  absl::Status Write(const std::string& path) const;

 private:
  struct Entry {
    SnapshotEntry entry;
    std::vector<SnapshotCandidate> candidates;  // their knob_begin counts in `knobs`
    std::vector<SnapshotKnob> knobs;
  };
  using Section = std::map<std::string, Entry>;  // by the bytes of the problem's key

  const Options options_;
  std::map<std::pair<std::string, Channel>, Section> sections_;  // the environment's key
  size_t choice_count_ = 0;
};

}  // namespace convtune::snapshot
