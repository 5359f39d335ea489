#include "client/cpp/snapshot_loader.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/replace_file.h"

namespace convtune::client {
namespace {

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
  std::string path = {};
  std::optional<FileMark> mark = {};
  std::shared_ptr<const SnapshotAnswers> last = nullptr;

  Outcome Read() {
    const std::string from = FolderOf(folder);
    std::string now_at = absl::StrCat(from, "/", snapshot::kSnapshotFile);
    const std::optional<FileMark> now = MarkOf(now_at);
    if (last != nullptr && now.has_value() && now == mark && now_at == path) return last;
    last = nullptr;
    auto opened = open(from);
    if (!opened.ok()) return opened.status();
    last = *std::move(opened);
    path = std::move(now_at);
    mark = now;
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
