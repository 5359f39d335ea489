#include "server/lookup/index_loader.h"

#include <algorithm>
#include <deque>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/monitoring/log.h"

namespace convtune::lookup {
namespace {

// From here on the log says that there is something to wait for.
constexpr absl::Duration kWorthSaying = absl::Seconds(1);
// Reading rows is one thread's; more helpers than these would wait for it.
constexpr unsigned kMostHelpers = 3;
constexpr size_t kBatch = 256;

}  // namespace

absl::Status IndexLoader::Start(absl::Duration timeout) {
  index_->BeginLoading([this](const TuningKey& key) { return tunings_.GetTuning(key); });
  thread_ = std::thread([this] { Run(); });
  absl::Status whole = Await(timeout);
  if (!absl::IsUnavailable(whole)) return whole;
  MutexLock lock(mutex_);
  return done_ ? status_ : absl::OkStatus();
}

void IndexLoader::Run() {
  const SteadyTime begin = SteadyTime::Now();
  std::atomic<int64_t> corrupt_rows = 0;
  const auto leave_out = [&corrupt_rows](const std::string& what) {
    ++corrupt_rows;
    log::Error("left out a row of the database: $0", what);
  };
  const auto load = [this, &leave_out](const std::vector<db::StoredTuning>& rows) {
    for (const db::StoredTuning& stored : rows) {
      if (stopping_) return;
      if (const absl::StatusOr<Tuning> tuning = stored.decode(); tuning.ok()) {
        index_->Load(*tuning);
        ++loaded_;
      } else {
        leave_out(std::string(tuning.status().message()));
      }
    }
  };
  // Other cores put batches where they belong. Where there can be no more threads, the batch is
  // put when it is waited for.
  std::vector<db::StoredTuning> batch;
  std::deque<std::future<void>> helpers;
  absl::Status status = tunings_.ForEachStored(
      [&](db::StoredTuning tuning) {
        batch.push_back(std::move(tuning));
        if (batch.size() < kBatch) return !stopping_;
        if (!helpers.empty() &&
            helpers.size() >= std::min(std::thread::hardware_concurrency(), kMostHelpers)) {
          helpers.front().get();
          helpers.pop_front();
        }
        helpers.push_back(std::async(load, std::exchange(batch, {})));
        return !stopping_;
      },
      leave_out);
  for (std::future<void>& helper : helpers) helper.get();
  load(batch);
  if (corrupt_rows > 0) log::Error("$0 rows of the database are corrupt", corrupt_rows.load());
  if (status.ok() && stopping_) status = absl::UnavailableError("the daemon is stopping");
  // Where it failed, look-ups go on to ask the store itself.
  if (status.ok()) index_->FinishLoading();
  const absl::Duration took = SteadyTime::Now() - begin;
  if (!status.ok() && !stopping_) {
    log::Error("could not read the database whole: $0; the next start looks at all of it",
               status.ToString());
  } else if (status.ok() && took > kWorthSaying) {
    log::Info("read $0 tunings in $1", loaded_.load(),
              absl::FormatDuration(absl::Trunc(took, absl::Milliseconds(1))));
  }
  MutexLock lock(mutex_);
  done_ = true;
  status_ = std::move(status);
  changed_.SignalAll();
}

absl::Status IndexLoader::Await(absl::Duration timeout) {
  const SteadyTime until = SteadyTime::Now() + timeout;
  MutexLock lock(mutex_);
  while (!done_ && !stopping_ && SteadyTime::Now() < until) {
    // A condition variable takes no infinity.
    changed_.WaitFor(
        mutex_, absl::ToChronoNanoseconds(std::min(until - SteadyTime::Now(), absl::Hours(1))));
  }
  if (done_) return status_;
  return absl::UnavailableError(
      absl::StrCat("the database is still being read (", loaded_.load(), " tunings so far)"));
}

void IndexLoader::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace convtune::lookup
