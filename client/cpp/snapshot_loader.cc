#include "client/cpp/snapshot_loader.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/default_paths.h"
#include "proto/base/mutex.h"

namespace convtune::client {
namespace {

using SnapshotPtr = std::shared_ptr<const SnapshotAnswers>;

// Path, inode and time of the last change: a file that was put in another one's place has another
// inode, even where the clock of the file system has not moved on. Empty: there is no file.
using FileIdentity = std::tuple<std::string, ino_t, int64_t, int64_t>;

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
  int64_t wanted GUARDED_BY(mutex) = 0;  // number of the last read that is to be
  int64_t begun GUARDED_BY(mutex) = 0;
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
    while (!stopping && begun == wanted) changed.Wait(mutex);
    begun = wanted;
    return !stopping;
  }

  void End(absl::StatusOr<SnapshotPtr> read) {
    MutexLock lock(mutex);
    outcome = std::move(read);
    ended = begun;
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

int64_t SnapshotLoader::Begin() {
  MutexLock lock(state_->mutex);
  if (!state_->running) {
    std::thread([state = state_] { state->Run(); }).detach();
    state_->running = true;
  }
  state_->wanted = state_->begun + 1;  // one that begins from now on
  state_->changed.SignalAll();
  return state_->wanted;
}

absl::StatusOr<SnapshotPtr> SnapshotLoader::Get(SteadyTime deadline) {
  const int64_t read = Begin();
  MutexLock lock(state_->mutex);
  while (state_->ended < read) {
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
