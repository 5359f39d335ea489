// A Committer makes every change of what is known: in the store, then in the index.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "convtune/v1/bundle_service.pb.h"
#include "convtune/v1/fleet_service.pb.h"
#include "convtune/v1/tuning_service.pb.h"
#include "db/layered_tunings.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/model/tuning/ban.h"
#include "server/lookup/tuning_index.h"

namespace convtune::commit {

// It makes one change at a time. Thread-safe.
class Committer {
 public:
  // `index` and `clock` outlive the committer. `retry_period`: pause between attempts to write what
  // the disk refused.
  Committer(db::LayeredTunings tunings, lookup::TuningIndex* index, const Clock* clock,
            absl::Duration retry_period = absl::Seconds(3));
  ~Committer() { Stop(); }

  // Call it before anything is changed. `observer` is called after every change of a key's
  // tuning, pin or quarantine; `override` is true where a pin or a quarantined candidate changed.
  // `bans_changed` is called once the index heeds a new ban, or no longer heeds one that has ended.
  // Both are called under the committer's lock, and must return at once.
  using Observer = std::function<void(const TuningKey& key, bool override)>;
  void SetObserver(Observer observer, std::function<void()> bans_changed) {
    MutexLock lock(mutex_);
    observer_ = std::move(observer);
    bans_changed_ = std::move(bans_changed);
  }

  // Reads pins and bans, into the index, and quarantined candidates. Call it before any
  // tuning is in the index: pins and bans decide which candidates that keeps. `shipped` hold
  // beside the store's bans.
  absl::Status Load(const std::vector<Ban>& shipped = {});

  // Writes the tuning, whose candidates are ranked (RankCandidates), and puts it
  // into the index, unless the stored one is better. Returns false where the store refuses
  // it: the tuning is then served from memory and written later. A tuning that was not
  // measured (its evidence is below INCOMPLETE) is served from memory alone, on purpose,
  // where it would replace a measurement that does not hold any more. Tunings that
  // several threads commit at a time go to the disk in one transaction.
  bool Commit(Tuning tuning, const Environment& environment, bool forced);

  // Keeps each of the tunings that is better (Supersedes) than what is
  // stored, ranked anew and without what is quarantined here, in one
  // transaction; then puts them into the index. One that does not hold for the devices' libraries
  // (WhyOutdated) is not taken. Other changes wait meanwhile. All or
  // nothing, as TuningStore::PutTunings. Returns taken_count and kept_count.
  absl::StatusOr<v1::ImportBundleResponse> Import(const db::TuningSource& next);

  // Puts each of the tunings in place of whatever is stored, as Import, so that
  // every node has the same; but not where a tuning of this node was not
  // delivered yet, which would be lost. Their origin must be FLEET.
  absl::StatusOr<v1::ApplyTuningsResponse> ApplyFleet(const db::TuningSource& next);

  // Reads the key's tuning with its samples. NOT_FOUND if nothing is stored under the key.
  absl::StatusOr<Tuning> Get(const TuningKey& key) {
    MutexLock lock(mutex_);
    return GetLocked(key);
  }
  // `fleets_alone`: those whose origin is FLEET; a tuning of this node that was committed in
  // the place of one of them stays.
  absl::StatusOr<int64_t> Delete(std::vector<TuningKey> keys, bool fleets_alone = false);
  // See Tuner::PutPin. Sets the pin's candidate to the best that fits the pattern.
  absl::Status PutPin(const CandidatePattern& candidate, Pin* pin);
  // NOT_FOUND if the problem has no pin; FAILED_PRECONDITION if `fleet_pin` is not the fleet's
  // number of the pin (0: the daemon's own).
  absl::Status DeletePin(const TuningKey& key, int64_t fleet_pin);

  // Sets the ban's number, and makes all answers heed it before it returns. At most
  // `max_changes` are given; what the index does not have yet is not among them.
  // ALREADY_EXISTS, RESOURCE_EXHAUSTED as Bans::CheckIsNew; else the store's errors. After an
  // error nothing is banned. `dry_run`: only says what it would do, and checks nothing.
  absl::StatusOr<v1::CreateBanResponse> AddBan(Ban* ban, int max_changes, bool dry_run = false);
  // When it returns, no answer heeds the ban any more. NOT_FOUND if there is no ban of that
  // number; FAILED_PRECONDITION if `fleet_ban` is not the fleet's number of the ban (0: the
  // daemon's own).
  absl::Status DeleteBan(int64_t number, int64_t fleet_ban);
  // Ends the bans that have expired; a thread of the committer's does so by itself.
  void EndExpiredBans();
  // Ordered by number. A ban is listed once all answers heed it, until none does any more.
  std::vector<Bans::Shared> ListBans() const;

  // Keeps the entry in memory even where the store refuses it. The candidate is
  // taken out of the tuning that is there already.
  void Quarantine(const QuarantineEntry& entry);
  // Candidates of the problem that took a worker down, or whose results are
  // wrong.
  std::map<CandidateId, QuarantineEntry> QuarantinedOf(const TuningKey& key) const;

  // Lifts the quarantine of those candidates of the problem that `lifted` names.
  // Errors are the store's: then nothing is lifted.
  absl::Status LiftQuarantine(const TuningKey& key,
                              const std::function<bool(const QuarantineEntry&)>& lifted);

  int64_t quarantined() const;  // candidates, of all problems

  // False while the store refuses.
  bool writable() const { return writable_ && store_->InPlace(); }
  // Tunings that wait for the disk.
  int64_t waiting() const { return waiting_; }
  // Tries a last time to write what waits, and ends the retries. Logs how many are lost.
  void Stop();

 private:
  // Puts a tuning into the index that the store was given before; `status` is what the store
  // said. Where that is an error, the tuning waits for the disk.
  void Written(const Tuning& tuning, const Environment& environment, const absl::Status& status)
      REQUIRES(mutex_);
  // Has the tuning wait until the disk takes it; `why` it did not is logged.
  void Keep(const Tuning& tuning, const Environment& environment, const absl::Status& why)
      REQUIRES(mutex_);
  void TakeOutOfAnswers(const QuarantineEntry& entry) REQUIRES(mutex_);
  // The tuning with all its candidates and samples, and with the evidence that the index gives it.
  Tuning Whole(const lookup::IndexedTuning& known) REQUIRES(mutex_);
  // nullptr if nothing stands in for the key's stored tuning.
  std::shared_ptr<const lookup::StandIn> StandInOf(const TuningKey& key) REQUIRES(mutex_) {
    const auto known = index_->Find(key).tuning;
    return known != nullptr ? known->stand_in : nullptr;
  }
  // Returns the outdated measured tuning in the store that this tuning must not replace: only a
  // measurement replaces a measurement. Returns nullptr if this tuning may be stored.
  std::shared_ptr<const lookup::IndexedTuning> MustLeaveOnDisk(const Tuning& tuning)
      REQUIRES(mutex_);
  // Serves it from memory, see Commit.
  void ServeInstead(const Tuning& tuning, std::shared_ptr<const lookup::IndexedTuning> outdated)
      REQUIRES(mutex_) {
    index_->PutInstead(tuning, std::move(outdated));
    observer_(tuning.key, false);
  }
  // A thread in Commit. The first that finds nobody at work commits what waits by then, its own
  // among it.
  struct Waiting {
    Tuning* tuning;
    const Environment* environment;
    bool forced;
    bool persisted = false;
    bool done = false;
  };

  // Takes `first` and what waits besides, each key at most once.
  std::vector<Waiting*> TakeGroup(Waiting* first) EXCLUDES(queue_mutex_);
  // Waits for the group that is at work or wants mutex_, and for no other: who releases mutex_ and
  // takes it again at once would get it nearly every time.
  void LetCommitsGoFirst() EXCLUDES(queue_mutex_, mutex_);
  void CommitGroup(const std::vector<Waiting*>& group) REQUIRES(mutex_);
  bool IsBetterThanStored(const Tuning& tuning) REQUIRES(mutex_);
  bool HoldsHere(const Tuning& tuning) const {
    return decision::WhyOutdated(tuning, index_->libraries()).empty();
  }
  absl::StatusOr<Tuning> GetLocked(const TuningKey& key) REQUIRES(mutex_) {
    const auto stand_in = StandInOf(key);
    return stand_in != nullptr ? stand_in->whole : GetToKeep(key);
  }
  // The tuning that the store has or is to be given.
  absl::StatusOr<Tuning> GetToKeep(const TuningKey& key) REQUIRES(mutex_) {
    const auto waiting = pending_.find(key);
    return waiting != pending_.end() ? waiting->second.tuning : tunings_.GetTuning(key);
  }
  // Marks what is quarantined here, and ranks.
  void MarkAndRank(Tuning* tuning) const;
  // Whether the tuning, which it may change, is to be put.
  using Takes = std::function<absl::StatusOr<bool>(Tuning*)>;
  // Puts the tunings that `takes` is true for, in one transaction, then into the index; returns how
  // many.
  absl::StatusOr<int64_t> PutAll(const db::TuningSource& next, const Takes& takes) REQUIRES(mutex_);
  // Calls `visit` for each tuning of the index whose answer or miss the ban may change, with
  // all its candidates; `usable` says whether a candidate that the ban fits is usable().
  // The lock is given up between two tunings, so that other changes come between.
  void ForEachUnder(const Ban& ban, const std::function<void(const Tuning&, bool usable)>& visit)
      EXCLUDES(mutex_);
  // Puts it into the index anew.
  void IndexAnew(const Tuning& tuning) REQUIRES(mutex_);
  // Returns whether the ban has expired, and takes it out of the store if it has.
  bool DeleteIfExpired(const Ban& ban, absl::Time now) REQUIRES(mutex_);
  // Takes the ban of that number, if there is one, out of the index and of all answers. `how` it
  // ended, for the log.
  void EndBan(int64_t number, std::string_view how) EXCLUDES(mutex_);
  // Writes what waits for the disk, up to the first refusal.
  void WritePending() REQUIRES(mutex_);
  // The store has the key's tuning, or shall not have it: it does not wait any more.
  void NoteKept(const TuningKey& key) REQUIRES(mutex_) {
    pending_.erase(key);
    waiting_ = static_cast<int64_t>(pending_.size());
  }
  // To be called before something is added to what waits for the disk.
  void WakeRetries() REQUIRES(mutex_) {
    // Where something waits already, they are awake and pause between attempts.
    if (pending_.empty() && pending_quarantine_.empty()) wake_retries_.SignalAll();
  }
  // Waits until something is to be written or a ban may have expired.
  void AwaitWork() REQUIRES(mutex_);
  void RunRetries();

  const db::LayeredTunings tunings_;
  db::TuningStore* const store_;  // of tunings_
  lookup::TuningIndex* const index_;
  const absl::Duration retry_period_;
  const Clock* const clock_;
  Observer observer_ = [](const TuningKey&, bool) {};
  std::function<void()> bans_changed_ = [] {};
  mutable Mutex mutex_;  // also orders the store's changes and the index's
  CondVar wake_retries_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::map<TuningKey, db::TuningRecord> pending_ GUARDED_BY(mutex_);
  // For those who do not wait for mutex_.
  std::atomic<int64_t> waiting_ = 0;  // of pending_
  std::atomic<bool> writable_ = true;
  std::vector<QuarantineEntry> pending_quarantine_ GUARDED_BY(mutex_);
  // Apart from mutex_, so that who comes while the disk is waited for can queue.
  mutable Mutex queue_mutex_;
  std::vector<Waiting*> queue_ GUARDED_BY(queue_mutex_);
  bool committing_ GUARDED_BY(queue_mutex_) = false;
  int64_t groups_ended_ GUARDED_BY(queue_mutex_) = 0;
  CondVar group_ended_;
  // Apart from mutex_, which is held while the disk is waited for.
  mutable Mutex state_mutex_;
  std::map<TuningKey, std::map<CandidateId, QuarantineEntry>> quarantine_ GUARDED_BY(state_mutex_);
  std::map<int64_t, Bans::Shared> listed_bans_ GUARDED_BY(state_mutex_);  // see ListBans
  std::thread retries_;
};

}  // namespace convtune::commit
