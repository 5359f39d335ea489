#include "server/lookup/index_loader.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/logging/log.h"

namespace convtune::lookup {
namespace {

// From here on the log says that there is something to wait for.
constexpr absl::Duration kWorthSaying = absl::Seconds(1);
// Reading and unpacking rows is one thread's; more than these wait for it.
constexpr unsigned kMostHelpers = 3;
constexpr size_t kBatch = 64;
constexpr size_t kMostBatches = 8;

// Puts into the index what one thread reads, with the other cores.
class Helpers {
 public:
  using Put = std::function<void(const Tuning&)>;

  explicit Helpers(Put put) : put_(std::move(put)) {
    const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
    try {
      while (threads_.size() < std::min(cores - 1, kMostHelpers)) {
        threads_.emplace_back([this] { Run(); });
      }
    } catch (const std::system_error&) {
      // With those that there are; with none the reader does it all.
    }
  }
  ~Helpers() { Finish(); }

  // Waits while they have enough to do. One thread's, as Finish.
  void Take(Tuning tuning) {
    if (threads_.empty()) {
      put_(tuning);
      return;
    }
    batch_.push_back(std::move(tuning));
    if (batch_.size() == kBatch) Pass();
  }

  // Returns once all that they took is put in.
  void Finish() {
    if (threads_.empty()) return;
    Pass();
    {
      MutexLock lock(mutex_);
      over_ = true;
      changed_.SignalAll();
    }
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void Pass() {
    MutexLock lock(mutex_);
    while (batches_.size() == kMostBatches) changed_.Wait(mutex_);
    batches_.push_back(std::exchange(batch_, {}));
    changed_.SignalAll();
  }

  void Run() {
    while (true) {
      std::vector<Tuning> batch;
      {
        MutexLock lock(mutex_);
        while (batches_.empty() && !over_) changed_.Wait(mutex_);
        if (batches_.empty()) return;
        batch = std::move(batches_.front());
        batches_.pop_front();
        changed_.SignalAll();
      }
      for (const Tuning& tuning : batch) put_(tuning);
    }
  }

  const Put put_;
  std::vector<Tuning> batch_;  // the reader's
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::vector<Tuning>> batches_ GUARDED_BY(mutex_);
  bool over_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace

absl::Status IndexLoader::Start(absl::Duration patience) {
  index_->BeginLoading([this](const TuningKey& key) { return tunings_.GetTuning(key); });
  thread_ = std::thread([this] { Run(); });
  const absl::Status whole = Await(patience);
  if (!absl::IsUnavailable(whole)) return whole;
  MutexLock lock(mutex_);
  return done_ ? status_ : absl::OkStatus();
}

void IndexLoader::Run() {
  const absl::Time begin = absl::Now();
  int64_t corrupt_rows = 0;
  Helpers helpers([this](const Tuning& tuning) {
    if (stopping_) return;
    index_->Load(tuning);
    ++loaded_;
  });
  absl::Status status = tunings_.ForEachTuning(
      [this, &helpers](Tuning tuning) {
        helpers.Take(std::move(tuning));
        return !stopping_;
      },
      [&corrupt_rows](const std::string& what) {
        ++corrupt_rows;
        log::Error("left out a row of the database: $0", what);
      });
  helpers.Finish();
  if (corrupt_rows > 0) log::Error("$0 rows of the database are corrupt", corrupt_rows);
  if (status.ok() && stopping_) status = absl::UnavailableError("the daemon is stopping");
  // Where it failed, look-ups go on to ask the store itself.
  if (status.ok()) index_->FinishLoading();
  const absl::Duration took = absl::Now() - begin;
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

}  // namespace convtune::lookup
