// The Publisher keeps the snapshot of what is served up to date, and learns from what
// programs report.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "db/snapshot/snapshot_writer.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/replace_file.h"
#include "server/commit/committer.h"
#include "server/release/datagram_socket.h"
#include "server/release/missed_problems.h"
#include "server/release/observation.h"
#include "server/release/release_manager.h"
#include "server/release/releases.h"

namespace convtune::release {

// Thread-safe. One thread of its own reconciles releases, writes the snapshot
// and tunes what is wanted: commits and look-ups never wait for it.
class Publisher : public ReleaseManager {
 public:
  // Observed tunings that are kept in one run of the daemon, and environments
  // that they may bring: anything may write to the socket.
  static constexpr int64_t kMostObserved = 20'000;
  static constexpr size_t kMostEnvironments = 64;

  struct Options {
    PublishOptions publish;
    db::ReleaseStore* store = nullptr;  // these four outlive it
    const lookup::TuningIndex* index = nullptr;
    commit::Committer* committer = nullptr;
    const Clock* clock = nullptr;
    // OK once the index is whole: nothing is decided or published before. An error
    // if it is not within `timeout`.
    std::function<absl::Status(absl::Duration timeout)> await_index;
    // Those that a device has: they are in the snapshot even before anything is
    // chosen.
    std::vector<Environment> current;
    // The environment in full where the daemon knows it, else as given, which
    // the daemon then takes note of.
    std::function<Environment(const Environment&)> complete;
    // The key text of the environment of that name.
    std::function<absl::StatusOr<std::string>(const std::string&)> resolve;
    // Tunes the problem if a device of its environment has nothing to do;
    // returns false otherwise. `done` is called once, perhaps at once.
    std::function<bool(const TuningKey&, std::function<void(const absl::Status&)> done)> tune;
  };

  explicit Publisher(Options options);
  ~Publisher() override;

  // Reads what was decided before, opens the socket, starts the thread. Errors
  // are the store's alone; a folder that cannot be had is in Status().
  absl::Status Start();
  // The problem's tuning changed; `override`: its pin or its quarantined
  // candidates did. Returns at once.
  void NoteChange(const TuningKey& key, bool override);
  // Bans changed, and with them what is served of any problem. Returns at once.
  void NoteBans();
  // Takes in what was noted, publishes a last time and ends the thread.
  // Idempotent.
  void Stop();

  ReleaseList ListReleases() override { return releases_.List(); }
  absl::StatusOr<ReleaseDiff> DiffReleases(int64_t from, int64_t to, const std::string& environment,
                                           const TuningKey& after, size_t limit) override;
  absl::StatusOr<Release> PromoteRelease(const std::string& author, const std::string& reason,
                                         int canary_permille) override;
  absl::StatusOr<Release> RollBackRelease(const std::string& author, const std::string& reason,
                                          int64_t to) override;
  absl::StatusOr<std::optional<Release>> FollowFleet(const std::string& author,
                                                     const std::string& reason) override;
  absl::StatusOr<std::vector<WantedProblem>> ListWanted(const std::string& environment) override;
  v1::Publication Status() override;

 private:
  // The work of one pass.
  struct Work {
    std::vector<TuningKey> keys;
    std::vector<std::pair<TuningKey, absl::Status>> tuned;
    bool all = false;
    bool publish = false;
  };

  void Run();
  // Waits until there is all that passes need; false if there will not be.
  bool Prepare() EXCLUDES(mutex_, work_mutex_);
  ReleaseDecision DecideNow(const std::string& author, const std::string& reason) const {
    return {author, reason, ToMicros(options_.clock->Now())};
  }
  // One round: reconcile, publish, keep what is wanted. Only once it is ready.
  void Pass() EXCLUDES(work_mutex_);
  // That, for somebody who waits; UNAVAILABLE if it does not get ready.
  absl::Status PassNow() EXCLUDES(work_mutex_);
  // A pass that publishes; `all`: and that looks at every problem.
  void PublishAtOnce(bool all) EXCLUDES(work_mutex_);
  absl::Status Reconcile(Work* work) REQUIRES(work_mutex_);
  absl::Status Publish() REQUIRES(work_mutex_);
  // Once, as soon as there is such a result.
  void SayNotPublished() REQUIRES(work_mutex_);
  void NoteTuned(const Work& work);
  void SettleMissed(const std::vector<TuningKey>& keys);
  void KeepMissed() REQUIRES(work_mutex_);
  void TuneMissed();
  void Receive(const void* data, size_t size);
  void ReceiveTuning(ReportedTuning reported);
  // Has the snapshot published again if it is not the file that was written.
  void LookAtFile() REQUIRES(mutex_);
  // At the latest then there is a pass.
  void DueBy(SteadyTime time) REQUIRES(mutex_);

  const Options options_;
  Releases releases_;
  std::unique_ptr<DatagramSocket> socket_;
  std::string snapshot_path_;

  Mutex work_mutex_;                              // one pass at a time; taken before mutex_
  bool damaged_ GUARDED_BY(work_mutex_) = false;  // rows may be missing
  // Of the last snapshot; nullopt before the first.
  std::optional<snapshot::SnapshotWriter::KeySet> carried_ GUARDED_BY(work_mutex_);
  bool said_not_published_ GUARDED_BY(work_mutex_) = false;
  SteadyTime said_published_ GUARDED_BY(work_mutex_) = SteadyTime::InfinitePast();
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  bool ready_ GUARDED_BY(mutex_) = false;  // see Prepare
  SteadyTime due_ GUARDED_BY(mutex_) = SteadyTime::InfiniteFuture();
  SteadyTime not_before_ GUARDED_BY(mutex_) = SteadyTime::InfinitePast();  // of the next write
  absl::Time pin_expiry_ GUARDED_BY(mutex_) = absl::InfiniteFuture();      // of those in the file
  std::optional<FileMark> written_ GUARDED_BY(mutex_);                     // of the last snapshot
  std::set<TuningKey> dirty_ GUARDED_BY(mutex_);
  Work work_ GUARDED_BY(mutex_);  // but for keys
  MissedProblems missed_ GUARDED_BY(mutex_);
  std::set<std::string> tuning_ GUARDED_BY(mutex_);                 // environments
  std::map<TuningKey, SteadyTime> tried_until_ GUARDED_BY(mutex_);  // not again before
  v1::Publication status_ GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace convtune::release
