#include "client/cpp/snapshot_loader.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

namespace convtune::client {
namespace {

std::string FolderOf(const std::string& chosen) {
  if (!chosen.empty()) return chosen;
  const char* const variable = std::getenv("CONVTUNE_SNAPSHOT");
  if (variable != nullptr && variable[0] != '\0') return variable;
  return snapshot::FindSnapshotFolder().path;
}

}  // namespace

SnapshotLoader::Outcome SnapshotLoader::Get(SteadyTime deadline) {
  std::shared_future<Outcome> read;
  {
    MutexLock lock(mutex_);
    if (!read_.valid() || read_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
      // The thread shares nothing with this object: a read may never end.
      std::packaged_task<Outcome()> task(
          [folder = folder_, open = open_] { return open(FolderOf(folder)); });
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
