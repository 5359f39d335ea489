// The TuningIndex is what look-ups are answered from: every tuning's best candidates and every
// pin, in memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/mutex.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/ban.h"
#include "proto/model/tuning/tuning.h"
#include "server/decision/evidence.h"
#include "server/lookup/indexed_tuning.h"

namespace convtune::lookup {

// A ChangeStamp tells whether the index has changed what it knows of a problem since the
// stamp was taken. Value type; the index outlives it. Thread-safe.
class ChangeStamp {
 public:
  // A stamp of no problem: unchanged() is false.
  ChangeStamp() = default;
  explicit ChangeStamp(const std::atomic<uint32_t>& changes)
      : changes_(&changes), seen_(changes.load(std::memory_order_acquire)) {}

  bool unchanged() const {
    return changes_ != nullptr && changes_->load(std::memory_order_acquire) == seen_;
  }

 private:
  const std::atomic<uint32_t>* changes_ = nullptr;
  uint32_t seen_ = 0;
};

// The tuning and the pin of a key; either may be nullptr.
struct IndexHit {
  std::shared_ptr<const IndexedTuning> tuning;
  std::shared_ptr<const Pin> pin;
};

struct TuningPage {
  std::vector<std::shared_ptr<const IndexedTuning>> tunings;
  bool more = false;  // there are others behind

  // The next page is the one after it. REQUIRES: there are tunings.
  TuningKey last() const { return tunings.back()->tuning.key.Whole(); }
};

// Thread-safe; look-ups of different keys seldom meet on a lock.
class TuningIndex {
 public:
  // A tuning that does not hold for the libraries that there are (WhyOutdated) is
  // no evidence of anything here, whatever the store says of it: it is kept as a
  // hint, with the reason OUTDATED.
  explicit TuningIndex(decision::ProvenanceByEnvironment libraries = {})
      : libraries_(std::move(libraries)) {}

  const decision::ProvenanceByEnvironment& libraries() const { return libraries_; }

  // Sets the bans that MakeEntry heeds from now on. Tunings that are in the index keep the bans
  // that they came with until they are put in anew.
  void SetBans(Bans bans);
  std::shared_ptr<const Bans> bans() const;
  // Tunings whose winner without constraints would be banned, by the ban's number.
  std::map<int64_t, int64_t> CountBanned() const;

  // Gives what the store has of a key; an error if it has nothing.
  using ReadFunction = std::function<absl::StatusOr<Tuning>(const TuningKey&)>;
  // From here to FinishLoading tunings come with Load, in any order and beside
  // all other calls, and Find and FindServing give what is not there yet by
  // `read`: to them the index is whole. List, Counts and FindHint see what is
  // there. Call it before other threads have the index.
  void BeginLoading(ReadFunction read);
  // Puts in what the store has, unless the key was published or erased since
  // BeginLoading: then the store's is older. Nothing after FinishLoading.
  void Load(const Tuning& stored);
  void FinishLoading();

  // Replaces the key's tuning. `tuning` holds all its candidates.
  void Put(const Tuning& tuning, bool persisted) { Put(MakeEntry(tuning, persisted)); }
  // The entry that Put would put in, for callers that decide later.
  std::shared_ptr<const IndexedTuning> MakeEntry(const Tuning& tuning, bool persisted) const;
  void Put(std::shared_ptr<const IndexedTuning> prepared) { Insert(std::move(prepared), true); }
  // Replaces the key's tuning by one that is not written to the store, and that is served instead
  // of `outdated`, which is.
  void PutInstead(const Tuning& tuning, std::shared_ptr<const IndexedTuning> outdated);
  // Returns true if the key had a tuning; a pin stays.
  bool Erase(const TuningKey& key);
  // Call Put after it where the key has a tuning already: the pinned
  // candidate may not be among those that are kept.
  void SetPin(const Pin& pin);
  void ErasePin(const TuningKey& key);

  IndexHit Find(const TuningKey& key) const;
  // The tuning with the best evidence that serves `problem`: its own, or one
  // that was made for less strict alignment. Those that were made at `too_old`, or before,
  // come after all others. The pin is that of the tuning returned, else the problem's own.
  IndexHit FindServing(const ConvProblem& problem, const TuningKey& key,
                       absl::Time too_old = absl::InfinitePast()) const;
  // A stamp that changes, after the index has, with every tuning or pin of the problem, in
  // whatever environment and for whatever alignment; seldom with others'.
  ChangeStamp StampOf(std::string_view problem_text) const;
  // The best tuning of the problem in another environment with the same GPU
  // model, for a hint; nullptr if no such tuning is known.
  std::shared_ptr<const IndexedTuning> FindHint(const TuningKey& key) const;

  // Up to `page_size` tunings, at least 1, in the order of (environment text, problem text):
  // the first ones behind `after`, or of all if its problem is empty. Empty
  // `environment_text`: of all environments.
  TuningPage List(const std::string& environment_text, size_t page_size, const TuningKey& after,
                  const std::string& text_filter) const;
  // Ordered by (environment text, problem text); expired ones left out.
  std::vector<Pin> ListPins(const std::string& environment_text, absl::Time now) const;
  // Number of tunings by environment text.
  std::map<std::string, int64_t> Counts() const;
  // Changes whenever Counts does.
  uint64_t counts_version() const { return counts_version_; }

 private:
  using KeyView = std::pair<std::string_view, std::string_view>;  // environment, problem
  using Shared = std::shared_ptr<const IndexedTuning>;
  static KeyView View(const KeyView& view) { return view; }
  static KeyView View(const TuningKey& key) { return {key.environment_text, key.problem_text}; }
  static KeyView View(const Shared& indexed) {
    return {indexed->tuning.key.environment_text(), indexed->tuning.key.problem_text};
  }
  // The key is that of the tuning or of the pin: at least one is there.
  static KeyView View(const IndexHit& entry) {
    return entry.tuning != nullptr ? View(entry.tuning) : View(entry.pin->key);
  }
  // Of whatever has a key, without a copy of the key.
  struct KeyHash {
    using is_transparent = void;
    size_t operator()(const auto& a) const { return absl::HashOf(View(a)); }
  };
  struct SameKey {
    using is_transparent = void;
    bool operator()(const auto& a, const auto& b) const { return View(a) == View(b); }
  };
  struct ByOrder {
    using is_transparent = void;
    bool operator()(const auto& a, const auto& b) const { return View(a) < View(b); }
  };
  struct Shard {
    mutable Mutex mutex;
    absl::flat_hash_set<IndexHit, KeyHash, SameKey> entries GUARDED_BY(mutex);
  };

  // Calls `change` on the key's entry, an empty one if there was none, and drops
  // the entry if it is empty afterwards.
  void Change(const TuningKey& key, const std::function<void(IndexHit*)>& change);
  void Insert(std::shared_ptr<const IndexedTuning> prepared, bool replace);
  // The entries in memory, without the store.
  IndexHit FindLoaded(const TuningKey& key) const;
  const Shard& ShardOf(const TuningKey& key) const;

  const decision::ProvenanceByEnvironment libraries_;
  mutable Mutex bans_mutex_;
  std::shared_ptr<const Bans> bans_ GUARDED_BY(bans_mutex_) = std::make_shared<const Bans>();
  ReadFunction read_;  // not changed once other threads have the index
  std::atomic<bool> loading_{false};
  mutable Mutex loading_mutex_;  // taken before the others
  // Erased since BeginLoading.
  std::set<TuningKey> erased_ GUARDED_BY(loading_mutex_);
  std::array<Shard, 16> shards_;
  // Counts of changes, by the problem's hash; see StampOf.
  std::array<std::atomic<uint32_t>, 16384> changes_{};
  mutable Mutex order_mutex_;
  absl::btree_set<Shared, ByOrder> ordered_ GUARDED_BY(order_mutex_);
  std::map<TuningKey, Pin> pins_ GUARDED_BY(order_mutex_);
  std::map<std::string, int64_t> counts_ GUARDED_BY(order_mutex_);
  std::atomic<uint32_t> alignments_{0};  // those that a tuning has had, a bit each
  std::atomic<uint64_t> counts_version_{0};
};

}  // namespace convtune::lookup
