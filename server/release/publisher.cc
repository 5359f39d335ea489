#include "server/release/publisher.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "db/snapshot/datagram.h"
#include "db/snapshot/snapshot.h"
#include "db/snapshot/snapshot_file.h"
#include "db/snapshot/snapshot_writer.h"
#include "proto/base/cancel_token.h"
#include "proto/base/mutex.h"
#include "proto/base/replace_file.h"
#include "proto/base/status_macros.h"
#include "proto/base/unique_fd.h"
#include "proto/convert/record_codec.h"
#include "proto/monitoring/log.h"
#include "server/commit/committer.h"
#include "server/release/missed_problems.h"
#include "server/release/observation.h"

namespace convtune::release {
namespace {

// From a pass that failed to the next.
constexpr absl::Duration kRetry = absl::Seconds(5);
// Between two looks whether the snapshot is still the file that was written.
constexpr absl::Duration kLookAtFile = absl::Seconds(10);
// A decision on a release waits this long for the index to be whole.
constexpr absl::Duration kIndexTimeout = absl::Seconds(10);
// The share of the time that writing snapshots may take when changes do not end.
constexpr double kMostOfTime = 0.1;
// Between two lines of the log about publications.
constexpr absl::Duration kPublishedPause = absl::Minutes(1);
// From a miss to its row in the store, and between two attempts to write it.
constexpr absl::Duration kKeepAfter = absl::Seconds(5);
// Between two looks for a device that has time for a missed problem.
constexpr absl::Duration kLookForIdle = absl::Seconds(1);
// A missed problem whose tuning did not help is left alone for this long. It doubles each time.
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

// A DatagramSocket is the unix socket beside the snapshot, to which programs report. It reads on a
// thread of its own, no more than kMostPerSlice in each slice of time: beyond that, and beyond what
// the kernel holds for a socket, senders find it full and drop what they have.
class DatagramSocket {
 public:
  // Called with each datagram, from the thread. One that is longer than kMaxDatagramBytes arrives
  // cut, one byte longer than that.
  using Receive = std::function<void(const void* data, size_t size)>;

  // Takes the place of a socket that is there. `open_to_all`: whoever reaches the folder may
  // report. UNAVAILABLE or INVALID_ARGUMENT with the path and why it cannot be had.
  static absl::StatusOr<std::unique_ptr<DatagramSocket>> Create(const std::string& path,
                                                                bool open_to_all, Receive receive) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": a socket's path must be shorter than ", sizeof address.sun_path, " bytes"));
    }
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.valid()) return FileError(path, "making the socket");
    ASSIGN_OR_RETURN(std::unique_ptr<CancelToken> stop, CancelToken::Create());
    struct stat there {};
    if (lstat(path.c_str(), &there) == 0) {
      if (!S_ISSOCK(there.st_mode)) {
        return absl::UnavailableError(absl::StrCat(path, ": is there and is no socket"));
      }
      // The state directory's lock says that no other daemon uses it.
      unlink(path.c_str());
    }
    setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &kReceiveBuffer, sizeof kReceiveBuffer);
    if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      return FileError(path, "binding the socket");
    }
    if (chmod(path.c_str(), open_to_all ? 0666 : 0660) != 0) {
      return FileError(path, "setting the socket's mode");
    }
    return std::unique_ptr<DatagramSocket>(
        new DatagramSocket(path, std::move(receive), std::move(socket), std::move(stop)));
  }

  // Waits for a callback that runs and removes the socket.
  ~DatagramSocket() {
    stop_->Cancel();
    thread_.join();
    unlink(path_.c_str());
  }
  DatagramSocket(const DatagramSocket&) = delete;
  DatagramSocket& operator=(const DatagramSocket&) = delete;

 private:
  static constexpr absl::Duration kSlice = absl::Milliseconds(100);
  static constexpr int kMostPerSlice = 500;
  static constexpr int kReceiveBuffer = 256 << 10;

  DatagramSocket(std::string path, Receive receive, UniqueFd socket,
                 std::unique_ptr<CancelToken> stop)
      : path_(std::move(path)),
        receive_(std::move(receive)),
        socket_(std::move(socket)),
        stop_(std::move(stop)),
        thread_([this] { Run(); }) {}

  void Run() {
    std::vector<char> buffer(snapshot::kMaxDatagramBytes + 1);
    while (WaitReadable(socket_.get(), *stop_, SteadyTime::InfiniteFuture())) {
      const SteadyTime slice_end = SteadyTime::Now() + kSlice;
      int taken = 0;
      while (taken < kMostPerSlice && WaitReadable(socket_.get(), *stop_, slice_end)) {
        const ssize_t size = recv(socket_.get(), buffer.data(), buffer.size(), 0);
        if (size < 0) continue;
        ++taken;
        receive_(buffer.data(), static_cast<size_t>(size));
      }
      // Over its share, the socket is left alone until the slice ends.
      if (taken == kMostPerSlice) stop_->WaitFor(slice_end - SteadyTime::Now());
    }
  }

  const std::string path_;
  const Receive receive_;
  const UniqueFd socket_;
  const std::unique_ptr<CancelToken> stop_;
  std::thread thread_;  // the last: it uses the others
};

using KeySet = snapshot::SnapshotWriter::KeySet;

struct SnapshotContents {
  Releases::Served served;
  int64_t choice_count = 0;                        // with those carried over
  KeySet carried;                                  // as in the file that was there before
  absl::Time pin_expiry = absl::InfiniteFuture();  // when the first of its pins expires
};

// Adds choices of the snapshot at `path` to the writer's. A file that is not
// there, or is no snapshot of this format, has nothing.
KeySet CarryOver(const std::string& path, const KeySet* among,
                 const snapshot::SnapshotWriter::Wanted& wanted, snapshot::SnapshotWriter* writer) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  snapshot::SnapshotFile file;
  const char* reason = "";
  if (!file.Read(path.c_str(), &reason)) {
    log::Warn("$0: $1; nothing of it is carried over", path, reason);
    return {};
  }
  return writer->AddMissing(file.view(), among, wanted);
}

// A SnapshotBuilder collects what one snapshot has, and writes it.
class SnapshotBuilder {
 public:
  SnapshotBuilder(const Publisher::Options& options, const Releases::Served& served,
                  const std::vector<Pin>& pins, absl::Time now)
      : options_(options),
        writer_({static_cast<uint64_t>(served.release),
                 static_cast<uint64_t>(served.canary_release),
                 static_cast<uint32_t>(served.canary_permille), now}) {
    for (const Pin& pin : pins) pins_.emplace(pin.key, &pin);
  }

  // A portfolio without choices is a decision, too: its problem has none.
  void Add(snapshot::Channel channel, const Portfolio& portfolio) {
    if (channel == snapshot::Channel::kStable) decided_.insert(portfolio.key);
    const auto quarantined = options_.committer->QuarantinedOf(portfolio.key);
    std::vector<Candidate> candidates;
    if (const auto pin = pins_.find(portfolio.key); pin != pins_.end()) {
      if (const auto candidate = Pinned(*pin->second)) candidates.push_back(*candidate);
    }
    const bool pinned = !candidates.empty();
    const Choice* stock = nullptr;
    for (const Choice& choice : portfolio.choices) {
      if ((choice.roles & kRoleStock) != 0) stock = &choice;
      if ((choice.roles & kServedRoles) == 0 || quarantined.contains(choice.candidate.id)) continue;
      if (pinned && choice.candidate.id == candidates.front().id) continue;
      candidates.push_back(choice.candidate);
    }
    if (candidates.empty()) return;
    const absl::Status status = Write(channel, portfolio, std::move(candidates), pinned, stock);
    if (!status.ok()) {
      log::Warn("left out of the snapshot: $0: $1", portfolio.key.problem_text, status.ToString());
    }
  }

  // Pins of problems that have no choice.
  void AddPinsAlone() {
    for (const auto& [key, pin] : pins_) {
      if (decided_.contains(key)) continue;
      Portfolio none;
      none.key = key;
      if (const lookup::IndexHit hit = options_.index->Find(key); hit.tuning != nullptr) {
        none.evidence = hit.tuning->tuning.evidence;
      }
      Add(snapshot::Channel::kStable, none);
    }
  }

  absl::Status Finish(const std::optional<KeySet>& carry_over, const std::string& path,
                      SnapshotContents* contents) {
    for (const Environment& environment : options_.current) {
      RETURN_IF_ERROR(writer_.AddEnvironment(environment));
    }
    const std::shared_ptr<const Bans> bans = options_.index->bans();
    const auto is_lost = [this, &bans](
                             const Environment& environment, const ConvProblem& problem,
                             const snapshot::SnapshotEntry& entry) -> std::optional<Bans> {
      const TuningKey key = {problem.ToText(), environment.ToText()};
      if (entry.pinned != 0 || !IsLost(key)) return std::nullopt;
      return bans->Of(key);
    };
    const bool any = contents->served.damaged || !carry_over;
    if (any || !carry_over->empty()) {
      contents->carried = CarryOver(path, any ? nullptr : &*carry_over, is_lost, &writer_);
    }
    contents->choice_count = static_cast<int64_t>(writer_.choice_count());
    return writer_.Write(path);
  }

 private:
  // False where the database says why the problem has no choice.
  bool IsLost(const TuningKey& key) const {
    if (decided_.contains(key) || !options_.committer->QuarantinedOf(key).empty()) return false;
    const lookup::IndexHit hit = options_.index->Find(key);
    return hit.tuning == nullptr || !hit.tuning->IsOutdated();
  }

  std::optional<Candidate> Pinned(const Pin& pin) const {
    const lookup::IndexHit hit = options_.index->Find(pin.key);
    if (hit.tuning == nullptr) return std::nullopt;
    if (options_.index->bans()->Find(pin.candidate, pin.key) != nullptr) return std::nullopt;
    for (const Candidate& c : hit.tuning->tuning.candidates) {
      if (c.id == pin.candidate && c.usable()) return c;
    }
    return std::nullopt;
  }

  absl::Status Write(snapshot::Channel channel, const Portfolio& portfolio,
                     std::vector<Candidate> candidates, bool pinned, const Choice* stock) {
    const std::string& text = portfolio.key.environment_text;
    auto environment = environments_.find(text);
    if (environment == environments_.end()) {
      environment = environments_.emplace(text, Environment::Parse(text)).first;
    }
    RETURN_IF_ERROR(environment->second.status());
    ASSIGN_OR_RETURN(ConvProblem problem, ConvProblem::Parse(portfolio.key.problem_text));
    snapshot::SnapshotChoice choice(std::move(problem));
    choice.candidates = std::move(candidates);
    choice.evidence = portfolio.evidence;
    choice.pinned = pinned;
    choice.release = static_cast<uint64_t>(portfolio.release);
    if (stock != nullptr && ApiOf(stock->candidate.id) == Api::kGraph) {
      choice.stock = {1, stock->candidate.numerical_notes, stock->candidate.behavior_notes, 0,
                      stock->candidate.workspace_bytes};
    }
    return writer_.Add(*environment->second, channel, choice);
  }

  const Publisher::Options& options_;
  snapshot::SnapshotWriter writer_;
  std::map<TuningKey, const Pin*> pins_;
  std::set<TuningKey> decided_;  // of the stable channel's portfolios
  std::map<std::string, absl::StatusOr<Environment>> environments_;
};

// Writes what `releases` serve to `path` (see db/snapshot). A pin is offered before what the
// release says, unless it is banned; a quarantined candidate is never offered. The environments of
// `options.current` are in the file even without a choice. A problem that the format cannot hold is
// logged and left out. Errors are the store's and the file's.
// A problem of `carry_over` whose choice the database has lost keeps that of the file that is
// replaced; nullopt: any problem does. So it is, too, where a damaged choice is found. Pins are not
// kept: one that was deleted would return.
absl::StatusOr<SnapshotContents> WriteSnapshot(const Publisher::Options& options,
                                               const Releases& releases,
                                               const std::optional<KeySet>& carry_over,
                                               absl::Time now, const std::string& path) {
  SnapshotContents contents;
  ASSIGN_OR_RETURN(contents.served, releases.ReadServed());
  const std::vector<Pin> pins = options.index->ListPins("", now);
  for (const Pin& pin : pins) {
    if (pin.expire_time) contents.pin_expiry = std::min(contents.pin_expiry, *pin.expire_time);
  }
  SnapshotBuilder builder(options, contents.served, pins, now);
  for (const Portfolio& p : contents.served.stable) builder.Add(snapshot::Channel::kStable, p);
  for (const Portfolio& p : contents.served.canary) builder.Add(snapshot::Channel::kCanary, p);
  builder.AddPinsAlone();
  RETURN_IF_ERROR(builder.Finish(carry_over, path, &contents));
  return contents;
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
    const std::string path = absl::StrCat(options_.publish.folder, "/", snapshot::kDatagramSocket);
    auto opened =
        DatagramSocket::Create(path, options_.publish.open_to_all,
                               [this](const void* data, size_t size) { Receive(data, size); });
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
    work_.keys.insert(key);
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

  absl::StatusOr<ReleaseDiff> DiffReleases(int64_t from, int64_t to,
                                           const std::string& environment) override {
    std::string text;
    if (!environment.empty()) {
      ASSIGN_OR_RETURN(text, options_.resolve(environment));
    }
    RETURN_IF_ERROR(PassNow());
    return releases_.Diff(from, to, text);
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
    PublishAtOnce(/*all=*/true);  // a library may have changed since the canary's choices
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
    PublishAtOnce(/*all=*/true);  // a library may have changed since the old release's choices
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
    std::set<TuningKey> keys;                               // whose tunings changed
    std::vector<std::pair<TuningKey, absl::Status>> tuned;  // by TuneMissed
    bool all = false;                                       // looks at every problem of the index
    bool publish = false;                                   // even if the releases do not change
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
    absl::Status status = options_.await_index();
    if (status.ok()) {
      const absl::Status sound = options_.store->CheckServed();
      if (!sound.ok()) {
        log::Error("the database's choices could not be checked: $0", sound.ToString());
        MutexLock pass(work_mutex_);
        damaged_ = absl::IsDataLoss(sound);
      }
      status = releases_.ReadChoices();
    }
    // Problems that programs missed before the choices were known. `releases_` are asked without
    // mutex_: they may wait for the committer, which calls NoteChange under its own lock.
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
      if (options_.clock->Now() >= pin_expiry_) {
        work.publish = true;
        pin_expiry_ = absl::InfiniteFuture();  // a pass that fails is repeated after a pause
      }
      due_ = SteadyTime::InfiniteFuture();
      status_.set_pending(work.publish || work.all);
    }
    const std::vector<TuningKey> keys(work.keys.begin(), work.keys.end());
    const absl::StatusOr<bool> changed = releases_.Reconcile(keys, work.all);
    work.publish |= changed.value_or(false);
    absl::Status status = changed.status();
    SayNotPublished();
    SettleMissed(keys);
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
    work_.keys.merge(work.keys);
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
    std::optional<KeySet> carry_over = carried_;
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
  std::optional<KeySet> carried_ GUARDED_BY(work_mutex_);
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
  Work work_ GUARDED_BY(mutex_);                                           // of the next pass
  MissedProblems missed_ GUARDED_BY(mutex_);
  std::set<std::string> tuning_ GUARDED_BY(mutex_);  // environments whose problem is being tuned
  std::map<TuningKey, SteadyTime> tried_until_ GUARDED_BY(mutex_);  // not tuned again before
  v1::Publication status_ GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Publisher> Publisher::Create(Options options) {
  return std::make_unique<SnapshotPublisher>(std::move(options));
}

}  // namespace convtune::release
