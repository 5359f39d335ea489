#include "client/cpp/include/convtune/resolver.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "client/cpp/resolver_convert.h"
#include "client/cpp/rpc_error.h"
#include "client/cpp/snapshot_answers.h"
#include "proto/base/default_paths.h"
#include "proto/base/mutex.h"
#include "proto/base/status_macros.h"

namespace convtune::client {
namespace {

constexpr size_t kMaxProblems = 10'000;
// Below the daemon's 4 MiB, with room for the other fields.
constexpr size_t kMaxRequestBytes = (4 << 20) - (64 << 10);
constexpr size_t kBytesPerProblem = 16;  // tags and lengths around the text
constexpr absl::Duration kFirstPause = absl::Milliseconds(10);
constexpr absl::Duration kLongestPause = absl::Milliseconds(500);

// A file that was put in another one's place has another inode, even where the
// clock of the file system has not moved on. All 0: there is none.
struct FileIdentity {
  ino_t inode = 0;
  int64_t seconds = 0;
  int64_t nanoseconds = 0;
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

FileIdentity IdentityOf(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return {};
  return {info.st_ino, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

bool SameAnswer(const Result& a, const Result& b) {
  return a.found == b.found && a.winner.text == b.winner.text && a.evidence == b.evidence;
}

// The queries that the daemon refuses, by their place, with the rule.
std::map<size_t, std::string> RefusedOf(const absl::Status& status, size_t queries) {
  std::map<size_t, std::string> refused;
  for (const Violation& violation : ViolationsOf(status)) {
    const std::string& field = violation.field;
    const size_t begin = std::string("problems[").size();
    if (field.rfind("problems[", 0) != 0) return {};
    const size_t place = std::strtoull(field.c_str() + begin, nullptr, 10);
    if (place >= queries) return {};
    refused.emplace(place, absl::StrCat(field, ": ", violation.rule));
  }
  return refused;
}

}  // namespace

class Resolver::Impl {
 public:
  explicit Impl(Options options) : options_(std::move(options)) {}
  ~Impl() { StopRefresh(); }

  std::vector<Result> Resolve(const std::vector<Query>& queries, absl::Time deadline,
                              const Constraints& constraints) {
    std::vector<Result> results(queries.size());
    for (size_t i = 0; i < queries.size(); ++i) results[i].problem = queries[i].problem;
    std::vector<size_t> part;
    size_t bytes = 0;
    for (size_t i = 0; i < queries.size(); ++i) {
      const size_t more = queries[i].problem.size() + kBytesPerProblem;
      if (part.size() == kMaxProblems || (!part.empty() && bytes + more > kMaxRequestBytes)) {
        ResolvePart(queries, std::exchange(part, {}), deadline, constraints, &results);
        bytes = 0;
      }
      part.push_back(i);
      bytes += more;
    }
    if (!part.empty()) ResolvePart(queries, std::move(part), deadline, constraints, &results);
    return results;
  }

  void StartRefresh(std::vector<Query> queries, const Constraints& constraints,
                    absl::Duration period, absl::Duration limit,
                    std::function<void(const std::vector<Result>&)> changed) {
    StopRefresh();
    refresh_ = std::thread([this, queries = std::move(queries), constraints, period, limit,
                            changed = std::move(changed)] {
      std::vector<Result> last(queries.size());
      while (true) {
        try {
          std::vector<Result> now = Resolve(queries, absl::Now() + limit, constraints);
          std::vector<Result> differ;
          for (size_t i = 0; i < now.size(); ++i) {
            // What could not be asked leaves the last answer as it was.
            if (now[i].source == Source::kNone || SameAnswer(now[i], last[i])) continue;
            differ.push_back(now[i]);
            last[i] = std::move(now[i]);
          }
          if (!differ.empty()) changed(differ);
        } catch (...) {
          // Memory ran out, or the callback threw: the next round may go better.
        }
        MutexLock lock(mutex_);
        const absl::Time next = absl::Now() + period;
        while (!stopping_ && absl::Now() < next) {
          stopped_.WaitFor(mutex_, absl::ToChronoNanoseconds(next - absl::Now()));
        }
        if (stopping_) return;
      }
    });
  }

  void StopRefresh() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      stopped_.SignalAll();
    }
    if (refresh_.joinable()) refresh_.join();
    MutexLock lock(mutex_);
    stopping_ = false;
  }

 private:
  absl::StatusOr<Client*> Connect() {
    MutexLock lock(mutex_);
    if (client_ != nullptr) return client_.get();
    Client::Options options;
    std::string address = options_.address;
    if (const char* variable = std::getenv("CONVTUNE_ADDRESS"); address.empty() && variable) {
      address = variable;
    }
    if (address.empty()) address = "unix:" + DefaultSocketPath();
    ASSIGN_OR_RETURN(options.address, Address::Parse(address));
    options.tls = {options_.tls_ca, options_.tls_cert, options_.tls_key};
    ASSIGN_OR_RETURN(client_, Client::Create(options));
    return client_.get();
  }

  // The file that is there now; read again only when it was replaced.
  absl::StatusOr<std::shared_ptr<const SnapshotAnswers>> Snapshot() {
    const char* variable = std::getenv("CONVTUNE_SNAPSHOT");
    const std::string folder = !options_.snapshot.empty() ? options_.snapshot
                               : variable != nullptr      ? variable
                                                          : DefaultStateDir() + "/snapshot";
    const FileIdentity now = IdentityOf(folder + "/" + format::kSnapshotFile);
    MutexLock lock(mutex_);
    if (snapshot_ == nullptr || now == FileIdentity() || now != snapshot_identity_) {
      snapshot_ = nullptr;
      ASSIGN_OR_RETURN(snapshot_, SnapshotAnswers::Open(folder, options_.environment));
      snapshot_identity_ = now;
    }
    return snapshot_;
  }

  // True if the snapshot has an answer for each; those that it has are results
  // then, those that it has not say why.
  bool AnswerFromSnapshot(const std::vector<Query>& queries, const std::vector<size_t>& places,
                          const Constraints& constraints, std::vector<Result>* results) {
    if (!options_.use_snapshot) return false;
    const auto snapshot = Snapshot();
    bool all = snapshot.ok();
    for (const size_t place : places) {
      Result& result = (*results)[place];
      if (snapshot.ok()) {
        result = (*snapshot)->Find(queries[place].problem, constraints);
        all = all && result.found;
      } else {
        result.why = std::string(snapshot.status().message());
      }
    }
    return all;
  }

  // Tries again while nobody answers, unless `enough` says that it need not.
  absl::StatusOr<v1::BatchGetResponse> Call(const v1::BatchGetRequest& request, absl::Time deadline,
                                            const std::function<bool()>& enough) {
    ASSIGN_OR_RETURN(Client* const client, Connect());
    absl::Duration pause = kFirstPause;
    bool first = true;
    while (true) {
      const absl::Duration left = deadline - absl::Now();
      if (left <= absl::ZeroDuration()) return absl::UnavailableError("no answer within the limit");
      auto response = client->BatchGet(request, left);
      if (!absl::IsUnavailable(response.status())) return response;
      if (std::exchange(first, false) && enough()) return response;
      if (absl::Now() + pause >= deadline) return response;
      absl::SleepFor(pause);
      pause = std::min(pause * 2, kLongestPause);
    }
  }

  void ResolvePart(const std::vector<Query>& queries, std::vector<size_t> places,
                   absl::Time deadline, const Constraints& constraints,
                   std::vector<Result>* results) {
    v1::BatchGetRequest request = ToRequest(options_.environment, constraints);
    while (!places.empty()) {
      request.clear_problems();
      for (const size_t place : places) {
        request.add_problems()->set_text(queries[place].problem);
      }
      const auto from_snapshot = [&] {
        return AnswerFromSnapshot(queries, places, constraints, results);
      };
      const auto response = Call(request, deadline, from_snapshot);
      if (response.ok() && response->results_size() == static_cast<int>(places.size())) {
        for (size_t i = 0; i < places.size(); ++i) {
          (*results)[places[i]] = ToResult(response->results(static_cast<int>(i)));
        }
        return;
      }
      const bool nobody =
          absl::IsUnavailable(response.status()) || absl::IsDeadlineExceeded(response.status());
      if (nobody && from_snapshot()) return;
      const std::map<size_t, std::string> refused = RefusedOf(response.status(), places.size());
      std::vector<size_t> left;
      for (size_t i = 0; i < places.size(); ++i) {
        Result& result = (*results)[places[i]];
        if (result.found) continue;
        const auto rule = refused.find(i);
        const std::string snapshot = result.why.empty() ? "" : "; " + result.why;
        result.why = rule != refused.end() ? rule->second
                     : response.ok()
                         ? "the daemon answered another number of problems"
                         : absl::StrCat(std::string(response.status().message()), snapshot);
        if (rule == refused.end()) left.push_back(places[i]);
      }
      if (refused.empty()) return;
      // The others are asked again.
      places = std::move(left);
    }
  }

  const Options options_;
  Mutex mutex_;
  CondVar stopped_;
  std::unique_ptr<Client> client_ GUARDED_BY(mutex_);
  std::shared_ptr<const SnapshotAnswers> snapshot_ GUARDED_BY(mutex_);
  FileIdentity snapshot_identity_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread refresh_;
};

Resolver::Resolver(Options options) noexcept {
  try {
    impl_ = std::make_unique<Impl>(std::move(options));
  } catch (...) {
    // Without memory there are no answers, either.
  }
}

Resolver::~Resolver() = default;

std::vector<Result> Resolver::Resolve(const std::vector<Query>& queries,
                                      std::chrono::milliseconds limit,
                                      const Constraints& constraints) noexcept {
  try {
    if (impl_ == nullptr) return {};
    return impl_->Resolve(queries, absl::Now() + absl::FromChrono(limit), constraints);
  } catch (...) {
    return {};
  }
}

bool Resolver::StartRefresh(std::vector<Query> queries, const Constraints& constraints,
                            std::chrono::milliseconds period, std::chrono::milliseconds limit,
                            std::function<void(const std::vector<Result>&)> changed) noexcept {
  try {
    if (impl_ == nullptr) return false;
    impl_->StartRefresh(std::move(queries), constraints, absl::FromChrono(period),
                        absl::FromChrono(limit), std::move(changed));
    return true;
  } catch (...) {
    return false;
  }
}

void Resolver::StopRefresh() noexcept {
  try {
    if (impl_ != nullptr) impl_->StopRefresh();
  } catch (...) {
    // The lock failed: nothing of ours is running.
  }
}

const char* Version() noexcept { return CONVTUNE_VERSION; }

}  // namespace convtune::client
