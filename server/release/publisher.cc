#include "server/release/publisher.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "db/snapshot/datagram.h"
#include "db/snapshot/snapshot.h"
#include "proto/base/mutex.h"
#include "proto/base/replace_file.h"
#include "proto/base/status_macros.h"
#include "proto/convert/record_codec.h"
#include "proto/monitoring/log.h"
#include "server/commit/committer.h"
#include "server/release/datagram_socket.h"
#include "server/release/missed_problems.h"
#include "server/release/observation.h"
#include "server/release/snapshot_build.h"

namespace convtune::release {
namespace {

constexpr absl::Duration kRetry = absl::Seconds(5);
// Between two looks whether the snapshot is still the file that was written.
constexpr absl::Duration kLookAtFile = absl::Seconds(10);
// A decision on a release waits this long for the index to be whole.
constexpr absl::Duration kIndexTimeout = absl::Seconds(10);
// Of the time, what writing snapshots may take when changes do not end.
constexpr double kMostOfTime = 0.1;
// Between two lines of the log about publications.
constexpr absl::Duration kPublishedPause = absl::Minutes(1);
constexpr absl::Duration kKeepAfter = absl::Seconds(5);
constexpr absl::Duration kLookForIdle = absl::Seconds(1);
constexpr absl::Duration kFirstPause = absl::Minutes(10);
constexpr absl::Duration kLongestPause = absl::Hours(24);
// Observed tunings that are kept in one run of the daemon, and environments that they may bring:
// anything may write to the socket.
constexpr int64_t kMostObserved = 20'000;
constexpr size_t kMostEnvironments = 64;
constexpr char kTooLittle[] = "what tuning gave is below --publish-evidence";

absl::Status MakeFolder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0755) == 0) {
    // Whatever the umask says: programs of other users read it.
    chmod(folder.c_str(), 0755);
    return absl::OkStatus();
  }
  if (errno == EEXIST) return absl::OkStatus();
  return FileError(folder, "making the folder");
}

// A SnapshotPublisher is the one Publisher. Its thread reconciles releases, writes the snapshot and
// tunes what is wanted.
class SnapshotPublisher final : public Publisher {
 public:
  explicit SnapshotPublisher(Options options)
      : options_(std::move(options)),
        releases_({options_.store, options_.index, options_.clock,
                   [this](const TuningKey& key) { return options_.committer->Get(key); },
                   options_.publish.floor, options_.publish.auto_promote}),
        snapshot_path_(absl::StrCat(options_.publish.folder, "/", snapshot::kSnapshotFile)) {}

  ~SnapshotPublisher() override { Stop(); }

  absl::Status Start() override {
    RETURN_IF_ERROR(releases_.Load());
    ASSIGN_OR_RETURN(const std::vector<WantedProblem> wanted, options_.store->ListWanted());
    {
      MutexLock lock(mutex_);
      missed_.Load(wanted);
      status_.set_folder(options_.publish.folder);
      work_.all = work_.publish = true;
      due_ = SteadyTime::Now();
    }
    if (const absl::Status made = MakeFolder(options_.publish.folder); !made.ok()) {
      // Writing the snapshot fails likewise, and says so.
      log::Error("$0", std::string(made.message()));
    }
    DatagramSocket::Options socket;
    socket.path = absl::StrCat(options_.publish.folder, "/", snapshot::kDatagramSocket);
    socket.open_to_all = options_.publish.open_to_all;
    socket.max_bytes = snapshot::kMaxDatagramBytes;
    socket.receive = [this](const void* data, size_t size) { Receive(data, size); };
    const std::string path = socket.path;
    auto opened = DatagramSocket::Create(std::move(socket));
    const std::string error(opened.status().message());
    if (opened.ok()) {
      socket_ = *std::move(opened);
    } else {
      log::Warn("nothing is learned from programs: $0", error);
    }
    {
      MutexLock lock(mutex_);
      status_.set_socket(socket_ != nullptr ? path : "");
      status_.set_socket_error(error);
    }
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  void NoteChange(const TuningKey& key, bool override) override {
    MutexLock lock(mutex_);
    dirty_.insert(key);
    if (override) work_.publish = true;
    DueBy(std::max(not_before_, SteadyTime::Now() + options_.publish.debounce));
  }

  void NoteBans() override {
    MutexLock lock(mutex_);
    work_.all = work_.publish = true;
    DueBy(std::max(not_before_, SteadyTime::Now() + options_.publish.debounce));
  }

  v1::ListReleasesResponse ListReleases() override { return releases_.List(); }

  void Stop() override {
    socket_.reset();
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      changed_.SignalAll();
    }
    if (!thread_.joinable()) return;
    thread_.join();
    {
      MutexLock lock(mutex_);
      if (!ready_) return;
    }
    Pass();
  }

  v1::Publication Status() override {
    const v1::ListReleasesResponse list = releases_.List();
    MutexLock lock(mutex_);
    LookAtFile();
    v1::Publication status = status_;
    status.set_pending(status_.pending() || work_.publish || work_.all);
    status.set_waiting_changes(list.waiting_changes());
    status.set_auto_promote_held(list.auto_promote_held());
    status.set_publish_evidence(list.publish_evidence());
    status.set_below_evidence_count(list.below_evidence_count());
    status.set_wanted_count(static_cast<int64_t>(missed_.size()));
    size_t here = 0;
    for (const Environment& environment : options_.current) {
      here += missed_.CountOf(environment.ToText());
    }
    status.set_wanted_elsewhere_count(static_cast<int64_t>(missed_.size() - here));
    return status;
  }

  absl::StatusOr<ReleaseDiff> DiffReleases(int64_t from, int64_t to, const std::string& environment,
                                           const TuningKey& after, size_t limit) override {
    std::string text;
    if (!environment.empty()) {
      ASSIGN_OR_RETURN(text, options_.resolve(environment));
    }
    RETURN_IF_ERROR(PassNow());
    return releases_.Diff(from, to, text, limit, after);
  }

  absl::StatusOr<v1::Release> PromoteRelease(const std::string& author, const std::string& reason,
                                             int canary_permille) override {
    RETURN_IF_ERROR(PassNow());  // what was committed until now is part of it
    ASSIGN_OR_RETURN(const Release release,
                     releases_.Promote(DecideNow(author, reason), canary_permille));
    log::Info("release $0 $1 by $2: $3", release.number,
              release.state == ReleaseState::kCanary
                  ? absl::StrCat("is a canary for ", release.canary_permille, " of 1000 processes")
                  : "promoted",
              author, reason);
    PublishAtOnce(/*all=*/true);  // a canary may be of before a library changed
    return ToProto(release);
  }

  absl::StatusOr<int64_t> FollowFleet(const std::string& author,
                                      const std::string& reason) override {
    RETURN_IF_ERROR(PassNow());  // what was applied until now is part of it
    ASSIGN_OR_RETURN(const std::optional<Release> release,
                     releases_.PromoteFleet(DecideNow(author, reason)));
    if (!release.has_value()) return 0;
    log::Info("release $0 promoted by $1: $2", release->number, author, reason);
    PublishAtOnce(/*all=*/false);
    return release->number;
  }

  absl::StatusOr<v1::Release> RollBackRelease(const std::string& author, const std::string& reason,
                                              int64_t to) override {
    RETURN_IF_ERROR(PassNow());
    ASSIGN_OR_RETURN(const Release release, releases_.RollBack(DecideNow(author, reason), to));
    log::Info("rolled back by $0: release $1$2: $3", author, release.number,
              release.restores != 0 ? absl::StrCat(" has the choices of ", release.restores)
                                    : ", a canary",
              reason);
    PublishAtOnce(/*all=*/true);  // and so may an old release
    return ToProto(release);
  }

  absl::StatusOr<std::vector<v1::WantedProblem>> ListWanted(
      const std::string& environment) override {
    std::vector<WantedProblem> problems;
    {
      MutexLock lock(mutex_);
      problems = missed_.MostWanted();
    }
    std::set<std::string> here;
    for (const Environment& current : options_.current) here.insert(current.ToText());
    std::vector<v1::WantedProblem> wanted;
    for (const WantedProblem& problem : problems) {
      const std::string& text = problem.key.environment_text;
      const std::string name = Environment::Parse(text).value_or(Environment()).Name();
      if (!environment.empty() && environment != text && environment != name) continue;
      v1::WantedProblem& row = wanted.emplace_back();
      row.set_problem_text(problem.key.problem_text);
      row.set_environment(name);
      row.set_environment_text(text);
      row.set_can_be_tuned(here.contains(text));
      row.set_miss_count(problem.misses);
      *row.mutable_first_seen_time() = convtune::ToProto(problem.first_seen);
      *row.mutable_last_seen_time() = convtune::ToProto(problem.last_seen);
      row.set_attempt_count(problem.attempts);
      row.set_last_error(problem.last_error);
    }
    if (wanted.empty() && !environment.empty()) {
      const absl::Status known = options_.resolve(environment).status();
      if (absl::IsNotFound(known)) return known;
    }
    return wanted;
  }

 private:
  // The work of one pass.
  struct Work {
    std::vector<TuningKey> keys;
    std::vector<std::pair<TuningKey, absl::Status>> tuned;
    bool all = false;
    bool publish = false;
  };

  // There is a pass at that time at the latest.
  void DueBy(SteadyTime time) REQUIRES(mutex_) {
    if (time >= due_) return;
    due_ = time;
    changed_.SignalAll();
  }

  // Waits until the index is whole, and reads the choices. Returns false if nothing will be
  // published: the daemon stops, or they cannot be read.
  bool Prepare() EXCLUDES(mutex_, work_mutex_) {
    absl::Status status = options_.await_index(absl::InfiniteDuration());
    if (status.ok()) {
      const absl::Status sound = options_.store->CheckServed();
      if (!sound.ok()) {
        log::Error("the database's choices could not be checked: $0", sound.ToString());
        MutexLock pass(work_mutex_);
        damaged_ = absl::IsDataLoss(sound);
      }
      status = releases_.ReadChoices();
    }
    // Problems that programs missed before the choices were known. Releases are asked
    // without the lock: they call what tells of changes.
    std::vector<TuningKey> missed;
    {
      MutexLock lock(mutex_);
      for (const WantedProblem& wanted : missed_.MostWanted()) missed.push_back(wanted.key);
    }
    SettleMissed(missed);
    MutexLock lock(mutex_);
    ready_ = status.ok();
    status_.set_error(std::string(status.message()));
    changed_.SignalAll();
    // UNAVAILABLE: the daemon stops.
    if (!ready_ && !absl::IsUnavailable(status)) {
      log::Error("nothing is published: $0", status.ToString());
    }
    return ready_;
  }

  void Run() {
    if (!Prepare()) return;
    while (true) {
      {
        MutexLock lock(mutex_);
        while (!stopping_ && SteadyTime::Now() < due_ && options_.clock->Now() < pin_expiry_) {
          // A pin ends by the wall clock, which may be set meanwhile.
          const absl::Duration wait = std::min(
              {due_ - SteadyTime::Now(), pin_expiry_ - options_.clock->Now(), kLookAtFile});
          changed_.WaitFor(mutex_, absl::ToChronoNanoseconds(wait));
          LookAtFile();
        }
        if (stopping_) return;
      }
      Pass();
      TuneMissed();
    }
  }

  // Has the snapshot published again if it is not the file that was written.
  void LookAtFile() REQUIRES(mutex_) {
    if (!written_ || MarkOf(snapshot_path_) == written_) return;
    written_.reset();
    log::Error("$0 is not the file that was published any more; it is published again",
               snapshot_path_);
    status_.set_error("somebody else changed or removed it; it is published again");
    work_.publish = true;
    DueBy(SteadyTime::Now());
  }

  // A Pass for a caller that waits for it. UNAVAILABLE if Prepare does not end in time.
  absl::Status PassNow() EXCLUDES(work_mutex_) {
    {
      const SteadyTime until = SteadyTime::Now() + kIndexTimeout;
      MutexLock lock(mutex_);
      while (!ready_ && SteadyTime::Now() < until) {
        changed_.WaitFor(mutex_, absl::ToChronoNanoseconds(until - SteadyTime::Now()));
      }
      if (!ready_) {
        return absl::UnavailableError(status_.error().empty() ? "the database is still being read"
                                                              : status_.error());
      }
    }
    Pass();
    return absl::OkStatus();
  }

  // A pass that publishes; with `all`, one that looks at every problem, too.
  void PublishAtOnce(bool all) EXCLUDES(work_mutex_) {
    {
      MutexLock lock(mutex_);
      work_.publish = true;
      work_.all |= all;
    }
    Pass();
  }

  // One round: reconcile, publish, keep what is wanted. REQUIRES: Prepare returned true.
  void Pass() EXCLUDES(work_mutex_) {
    MutexLock pass(work_mutex_);
    Work work;
    {
      MutexLock lock(mutex_);
      std::swap(work, work_);
      work.keys.assign(dirty_.begin(), dirty_.end());
      dirty_.clear();
      if (options_.clock->Now() >= pin_expiry_) {
        work.publish = true;
        pin_expiry_ = absl::InfiniteFuture();  // a pass that fails is repeated after a pause
      }
      due_ = SteadyTime::InfiniteFuture();
      status_.set_pending(work.publish || work.all);
    }
    const absl::StatusOr<bool> changed = releases_.Reconcile(work.keys, work.all);
    work.publish |= changed.value_or(false);
    absl::Status status = changed.status();
    SayNotPublished();
    SettleMissed(work.keys);
    NoteTuned(work);
    // Served choices are published even where nothing new can be decided.
    if (work.publish) status.Update(Publish());
    KeepMissed();
    MutexLock lock(mutex_);
    status_.clear_pending();
    if (status.ok()) {
      status_.clear_error();
      return;
    }
    if (status_.error() != status.message()) {
      log::Error("the snapshot is not up to date: $0", status.ToString());
    }
    status_.set_error(std::string(status.message()));
    for (const TuningKey& key : work.keys) dirty_.insert(key);
    work_.all |= work.all;
    work_.publish |= work.publish;
    DueBy(SteadyTime::Now() + kRetry);
  }

  // Logs once, as soon as a result has too little evidence.
  void SayNotPublished() REQUIRES(work_mutex_) {
    if (said_not_published_ || releases_.List().below_evidence_count() == 0) return;
    said_not_published_ = true;
    log::Info("results of less evidence than $0 are not published (--publish-evidence)",
              Name(options_.publish.floor));
  }

  absl::Status Publish() REQUIRES(work_mutex_) {
    const SteadyTime start = SteadyTime::Now();
    const absl::Time now = options_.clock->Now();
    ASSIGN_OR_RETURN(const bool carried_over, options_.store->CarriesOver());
    std::optional<snapshot::SnapshotWriter::KeySet> carry_over = carried_;
    if (!carried_ && !carried_over && !damaged_) carry_over.emplace();
    {
      MutexLock lock(mutex_);
      written_.reset();  // until it is known what the new file is
    }
    ASSIGN_OR_RETURN(const SnapshotContents contents,
                     WriteSnapshot(options_, releases_, carry_over, now, snapshot_path_));
    if (!carried_ && !contents.carried.empty()) {
      log::Error(
          "$0 choices of the snapshot are missing in the database, which is new or was damaged",
          contents.carried.size());
    }
    carried_ = contents.carried;
    const std::optional<FileMark> written = MarkOf(snapshot_path_);
    const bool carries_over = !contents.carried.empty();
    if (carries_over != carried_over) {
      const absl::Status kept = options_.store->SetCarryOver(carries_over);
      if (!kept.ok()) log::Warn("carried choices wait for the disk: $0", kept.ToString());
    }
    bool say = start - said_published_ >= kPublishedPause;
    {
      MutexLock lock(mutex_);
      // While tunings end there is a publication every debounce.
      say = say || !status_.error().empty() || contents.served.release != status_.release();
    }
    if (say) said_published_ = start;
    log::Write(say ? log::Level::kInfo : log::Level::kDebug,
               "published release $0: $1 choices in $2", contents.served.release,
               contents.choice_count, snapshot_path_);
    MutexLock lock(mutex_);
    *status_.mutable_publish_time() = convtune::ToProto(ToMicros(now));
    written_ = written;
    status_.set_release(contents.served.release);
    status_.set_canary_release(contents.served.canary_release);
    status_.set_canary_permille(contents.served.canary_permille);
    status_.set_choice_count(contents.choice_count);
    status_.set_carried_count(static_cast<int64_t>(contents.carried.size()));
    not_before_ = SteadyTime::Now() + (SteadyTime::Now() - start) / kMostOfTime;
    pin_expiry_ = contents.pin_expiry;
    return absl::OkStatus();
  }

  void Receive(const void* data, size_t size) {
    const absl::Time now = options_.clock->Now();
    absl::StatusOr<Report> report = ReadReport(data, size, now);
    {
      MutexLock lock(mutex_);
      status_.set_datagrams_received(status_.datagrams_received() + 1);
      if (!report.ok()) status_.set_datagrams_malformed(status_.datagrams_malformed() + 1);
    }
    if (!report.ok()) {
      log::Debug("ignored a datagram: $0", std::string(report.status().message()));
      return;
    }
    if (auto* tuning = std::get_if<ReportedTuning>(&*report)) {
      ReceiveTuning(std::move(*tuning));
      return;
    }
    const auto& miss = std::get<ReportedMiss>(*report);
    // A program that started before the problem had its choice.
    const bool is_wanted = miss.wants_tuning && !releases_.HasChoice(miss.key);
    MutexLock lock(mutex_);
    status_.set_misses(status_.misses() + miss.count);
    if (!is_wanted || !missed_.AddMisses(miss.key, miss.count, now)) return;
    DueBy(SteadyTime::Now() + (options_.publish.tune_wanted ? kLookForIdle : kKeepAfter));
  }

  void ReceiveTuning(ReportedTuning reported) {
    const TuningKey key = reported.tuning.key;
    {
      MutexLock lock(mutex_);
      if (status_.observed() >= kMostObserved) return;
    }
    const lookup::IndexHit known = options_.index->Find(key);
    if (known.tuning != nullptr) {
      const Evidence evidence = known.tuning->tuning.evidence;
      if (evidence > Evidence::kObserved) return;
      if (evidence == Evidence::kObserved) {
        const absl::StatusOr<Tuning> stored = options_.committer->Get(key);
        if (stored.ok() && !AddsToObserved(*stored, &reported.tuning)) return;
      }
    }
    const auto counts = options_.index->Counts();
    if (!counts.contains(key.environment_text) && counts.size() >= kMostEnvironments) return;
    options_.committer->Commit(std::move(reported.tuning), options_.complete(reported.environment),
                               /*forced=*/true);
    MutexLock lock(mutex_);
    status_.set_observed(status_.observed() + 1);
  }

  // Forgets the misses of those of these problems that have a choice.
  void SettleMissed(const std::vector<TuningKey>& keys) {
    for (const TuningKey& key : keys) {
      if (!releases_.HasChoice(key)) continue;
      MutexLock lock(mutex_);
      missed_.Erase(key);
      tried_until_.erase(key);
    }
  }

  // Ends what TuneMissed began. A problem that still has no choice is left alone for a while.
  void NoteTuned(const Work& work) {
    for (const auto& [key, status] : work.tuned) {
      const bool failed = !absl::IsCancelled(status) && !releases_.HasChoice(key);
      MutexLock lock(mutex_);
      tuning_.erase(key.environment_text);
      if (!failed) continue;
      const int failures =
          missed_.AddFailure(key, status.ok() ? kTooLittle : std::string(status.message()));
      if (failures == 0) continue;  // nobody misses it any more
      const absl::Duration pause = kFirstPause * (1 << std::clamp(failures - 1, 0, 10));
      tried_until_.insert_or_assign(key, SteadyTime::Now() + std::min(kLongestPause, pause));
    }
  }

  void KeepMissed() REQUIRES(work_mutex_) {
    MissedProblems::Changes changes;
    {
      MutexLock lock(mutex_);
      missed_.Forget(options_.clock->Now());
      changes = missed_.TakeChanges();
    }
    if (changes.empty()) return;
    const absl::Status kept = options_.store->UpdateWanted(changes.put, changes.drop);
    if (kept.ok()) return;
    log::Warn("wanted problems wait for the disk: $0", kept.ToString());
    MutexLock lock(mutex_);
    missed_.GiveBack(changes);
    DueBy(SteadyTime::Now() + kKeepAfter);
  }

  // Has the most wanted problem of each environment tuned, unless one of it is being tuned.
  void TuneMissed() {
    if (!options_.publish.tune_wanted) return;
    const SteadyTime now = SteadyTime::Now();
    std::vector<WantedProblem> wanted;
    std::set<std::string> busy;
    {
      MutexLock lock(mutex_);
      if (missed_.size() == 0) return;
      wanted = missed_.MostWanted();
      busy = tuning_;
      std::erase_if(wanted, [this, now](const WantedProblem& problem) REQUIRES(mutex_) {
        const auto tried = tried_until_.find(problem.key);
        return tried != tried_until_.end() && now < tried->second;
      });
    }
    for (const WantedProblem& problem : wanted) {
      const std::string& environment = problem.key.environment_text;
      if (!busy.insert(environment).second) continue;
      const TuningKey key = problem.key;
      {
        MutexLock lock(mutex_);
        tuning_.insert(environment);
      }
      const bool taken = options_.tune(key, [this, key](const absl::Status& status) {
        MutexLock lock(mutex_);
        work_.tuned.emplace_back(key, status);
        DueBy(SteadyTime::Now());
      });
      if (taken) continue;
      MutexLock lock(mutex_);
      tuning_.erase(environment);
    }
    MutexLock lock(mutex_);
    DueBy(SteadyTime::Now() + kLookForIdle);
  }

  ReleaseDecision DecideNow(const std::string& author, const std::string& reason) const {
    return {author, reason, ToMicros(options_.clock->Now())};
  }

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

}  // namespace

std::unique_ptr<Publisher> Publisher::Create(Options options) {
  return std::make_unique<SnapshotPublisher>(std::move(options));
}

}  // namespace convtune::release
