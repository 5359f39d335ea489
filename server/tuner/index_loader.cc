#include "server/tuner/index_loader.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "spdlog/spdlog.h"

namespace convtune {
namespace {

// From here on the log says that there is something to wait for.
constexpr absl::Duration kWorthSaying = absl::Seconds(1);

}  // namespace

absl::Status IndexLoader::Start(absl::Duration patience) {
  index_->BeginLoading([this](const TuningKey& key) { return store_->GetTuning(key); });
  thread_ = std::thread([this] { Run(); });
  const absl::Status whole = Await(patience);
  if (!absl::IsUnavailable(whole)) return whole;
  MutexLock lock(mutex_);
  return done_ ? status_ : absl::OkStatus();
}

void IndexLoader::Run() {
  const absl::Time begin = absl::Now();
  int64_t corrupt_rows = 0;
  absl::Status status = store_->ForEachTuning(
      [this](Tuning tuning) {
        index_->Load(tuning);
        ++loaded_;
        return !stopping_;
      },
      [&corrupt_rows](const std::string& what) {
        ++corrupt_rows;
        spdlog::error("left out a row of the database: {}", what);
      });
  if (corrupt_rows > 0) spdlog::error("{} rows of the database are corrupt", corrupt_rows);
  if (status.ok() && stopping_) status = absl::UnavailableError("the daemon is stopping");
  // Where it failed, look-ups go on to ask the store itself.
  if (status.ok()) index_->FinishLoading();
  const absl::Duration took = absl::Now() - begin;
  if (!status.ok() && !stopping_) {
    spdlog::error("could not read the database whole: {}; the next start looks at all of it",
                  status.ToString());
  } else if (status.ok() && took > kWorthSaying) {
    spdlog::info("read {} tunings in {}", loaded_.load(),
                 absl::FormatDuration(absl::Trunc(took, absl::Milliseconds(1))));
  }
  MutexLock lock(mutex_);
  done_ = true;
  status_ = std::move(status);
  changed_.SignalAll();
}

absl::Status IndexLoader::Await(absl::Duration patience) {
  const absl::Time until = absl::Now() + patience;
  MutexLock lock(mutex_);
  while (!done_ && !stopping_ && absl::Now() < until) {
    // A condition variable takes no infinity.
    changed_.WaitFor(mutex_,
                     absl::ToChronoNanoseconds(std::min(until - absl::Now(), absl::Hours(1))));
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

}  // namespace convtune
