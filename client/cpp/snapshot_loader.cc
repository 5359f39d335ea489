#include "client/cpp/snapshot_loader.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"

namespace convtune::client {
namespace {

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
  return snapshot::FindSnapshotFolder().path;
}

}  // namespace

// Used by one thread at a time: that of the read that is under way.
struct SnapshotLoader::Reader {
  const std::string folder;
  const Open open;
  // The file is read again only when it was replaced.
  FileIdentity identity = {};
  std::shared_ptr<const SnapshotAnswers> last = nullptr;

  Outcome Read() {
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

  Outcome ReadWithoutException() {
    try {
      return Read();
    } catch (...) {
      return absl::ResourceExhaustedError("the snapshot does not fit into memory");
    }
  }
};

SnapshotLoader::SnapshotLoader(std::string folder, Open open)
    : reader_(new Reader{std::move(folder), std::move(open)}) {}

SnapshotLoader::Outcome SnapshotLoader::Get(SteadyTime deadline) {
  std::shared_future<Outcome> read;
  {
    MutexLock lock(mutex_);
    if (!read_.valid() || read_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
      std::packaged_task<Outcome()> task(
          [reader = reader_] { return reader->ReadWithoutException(); });
      read_ = task.get_future().share();
      std::thread(std::move(task)).detach();
    }
    read = read_;
  }
  while (read.wait_for(absl::ToChronoNanoseconds(
             std::clamp(deadline - SteadyTime::Now(), absl::ZeroDuration(), absl::Hours(1)))) !=
         std::future_status::ready) {
    if (SteadyTime::Now() >= deadline) {
      return absl::DeadlineExceededError("the snapshot could not be read within the limit");
    }
  }
  return read.get();
}

}  // namespace convtune::client
