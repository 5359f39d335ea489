#include "client/cpp/snapshot_loader.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/default_paths.h"
#include "proto/base/mutex.h"

namespace convtune::client {
namespace {

using SnapshotPtr = std::shared_ptr<const SnapshotAnswers>;

// A file that was put in another one's place has another inode, even where the
// clock of the file system has not moved on. All 0: there is none.
struct FileIdentity {
  std::string path;
  ino_t inode = 0;
  int64_t seconds = 0;
  int64_t nanoseconds = 0;
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

FileIdentity IdentityOf(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return {};
  return {path, info.st_ino, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

std::string FolderOf(const std::string& chosen) {
  if (!chosen.empty()) return chosen;
  const char* const variable = std::getenv("CONVTUNE_SNAPSHOT");
  if (variable != nullptr && variable[0] != '\0') return variable;
  return FirstFolderWith(snapshot::kSnapshotFile, ClientSnapshotFolders());
}

}  // namespace

// Shared with the thread, which may be in a read that never ends.
struct SnapshotLoader::State {
  State(std::string from, Open with) : folder(std::move(from)), open(std::move(with)) {}

  const std::string folder;
  const Open open;
  Mutex mutex;
  CondVar changed;
  bool running GUARDED_BY(mutex) = false;
  bool stopping GUARDED_BY(mutex) = false;
  int wishes GUARDED_BY(mutex) = 0;
  SteadyTime when GUARDED_BY(mutex) = SteadyTime::InfiniteFuture();
  int64_t begun GUARDED_BY(mutex) = 0;  // reads
  int64_t ended GUARDED_BY(mutex) = 0;
  absl::StatusOr<SnapshotPtr> outcome GUARDED_BY(mutex) = absl::NotFoundError("not read");
  // The thread's own: the file is read again only when it was replaced.
  FileIdentity identity;
  SnapshotPtr last;

  absl::StatusOr<SnapshotPtr> ReadNow() {
    const std::string from = FolderOf(folder);
    const FileIdentity now = IdentityOf(absl::StrCat(from, "/", snapshot::kSnapshotFile));
    if (last != nullptr && now != FileIdentity() && now == identity) return last;
    last = nullptr;
    auto opened = open(from);
    if (!opened.ok()) return opened.status();
    last = *std::move(opened);
    identity = now;
    return last;
  }

  void Run() {
    while (AwaitTurn()) End(Guarded());
  }

  // False if it is to end.
  bool AwaitTurn() {
    MutexLock lock(mutex);
    while (!stopping && SteadyTime::Now() < when) {
      const absl::Duration left = std::min(when - SteadyTime::Now(), absl::Hours(1));
      changed.WaitFor(mutex, absl::ToChronoNanoseconds(left));
    }
    when = SteadyTime::InfiniteFuture();
    ++begun;
    return !stopping;
  }

  void End(absl::StatusOr<SnapshotPtr> read) {
    MutexLock lock(mutex);
    outcome = std::move(read);
    ++ended;
    changed.SignalAll();
  }

  // Without memory there is no snapshot, either.
  absl::StatusOr<SnapshotPtr> Guarded() {
    try {
      return ReadNow();
    } catch (...) {
      return absl::ResourceExhaustedError("the snapshot does not fit into memory");
    }
  }
};

SnapshotLoader::SnapshotLoader(std::string folder, Open open)
    : state_(std::make_shared<State>(std::move(folder), std::move(open))) {}

SnapshotLoader::~SnapshotLoader() {
  MutexLock lock(state_->mutex);
  state_->stopping = true;
  state_->changed.SignalAll();
}

SnapshotLoader::Read SnapshotLoader::Begin(SteadyTime when) {
  MutexLock lock(state_->mutex);
  if (!state_->running) {
    std::thread([state = state_] { state->Run(); }).detach();
    state_->running = true;
  }
  ++state_->wishes;
  state_->when = std::min(state_->when, when);
  state_->changed.SignalAll();
  return Read(state_, state_->begun);
}

SnapshotLoader::Read::Read(std::shared_ptr<State> state, int64_t begun)
    : state_(std::move(state)), begun_(begun) {}

SnapshotLoader::Read::Read(Read&& other) noexcept
    : state_(std::move(other.state_)), begun_(other.begun_) {}

SnapshotLoader::Read::~Read() {
  if (state_ == nullptr) return;
  MutexLock lock(state_->mutex);
  if (--state_->wishes == 0) state_->when = SteadyTime::InfiniteFuture();
}

absl::StatusOr<SnapshotPtr> SnapshotLoader::Read::Wait(SteadyTime deadline) {
  MutexLock lock(state_->mutex);
  if (state_->begun == begun_) {
    state_->when = SteadyTime::InfinitePast();
    state_->changed.SignalAll();
  }
  while (state_->ended <= begun_) {
    const absl::Duration left = deadline - SteadyTime::Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError("the snapshot could not be read within the limit");
    }
    state_->changed.WaitFor(state_->mutex,
                            absl::ToChronoNanoseconds(std::min(left, absl::Hours(1))));
  }
  return state_->outcome;
}

}  // namespace convtune::client
