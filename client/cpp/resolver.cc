#include "client/cpp/include/convtune/resolver.h"
#include "proto/base/clock.h"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <stop_token>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cpp/client.h"
#include "client/cpp/program.h"
#include "client/cpp/resolver_convert.h"
#include "client/cpp/snapshot_loader.h"
#include "proto/base/default_paths.h"
#include "proto/base/mutex.h"
#include "proto/base/status_macros.h"
#include "proto/convert/terms_proto.h"
#include "proto/model/problem/conv_problem.h"

namespace convtune::client {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(10);
constexpr absl::Duration kLongestPause = absl::Milliseconds(500);

bool SameAnswer(const Result& a, const Result& b) {
  return a.found == b.found && a.winner.text == b.winner.text && a.evidence == b.evidence;
}

// As it is given if it is no problem.
std::string CanonicalOr(const std::string& text) {
  const absl::StatusOr<ConvProblem> problem = ConvProblem::Parse(text);
  return problem.ok() ? problem->ToText() : text;
}

}  // namespace

class Resolver::Impl {
 public:
  explicit Impl(Options options) : options_(std::move(options)) {
    if (options_.use_snapshot) {
      loader_ = std::make_unique<SnapshotLoader>(options_.snapshot);
    }
  }

  // For `program`, else for that of the options; its missing parts are looked for if that is
  // wanted.
  std::vector<Result> Resolve(const std::vector<Query>& queries, SteadyTime deadline,
                              const Constraints& constraints,
                              std::optional<Environment> program = std::nullopt) {
    Environment own = std::move(program).value_or(options_.program);
    std::vector<Result> results(queries.size());
    for (size_t i = 0; i < queries.size(); ++i) results[i].problem = queries[i].problem;
    if (options_.find_program) FindProgram(&own);
    absl::StatusOr<Terms> terms = MakeTerms(options_.environment, own, constraints);
    if (!terms.ok()) {
      for (Result& result : results) {
        result.miss = MissReason::kRefused;
        result.message = std::string(terms.status().message());
      }
      return results;
    }
    if (options_.enqueue_misses) terms->request.set_on_miss(v1::ON_MISS_ENQUEUE);
    const Call call = {queries, deadline, *terms, &results};
    std::vector<std::vector<size_t>> parts;
    RequestSplitter splitter;
    for (size_t i = 0; i < queries.size(); ++i) {
      if (splitter.Begins(queries[i].problem.size())) parts.emplace_back();
      parts.back().push_back(i);
    }
    for (std::vector<size_t>& part : parts) ResolvePart(call, std::move(part));
    return results;
  }

  // `period` is a year at most.
  void StartRefresh(std::vector<Query> queries, const Constraints& constraints,
                    absl::Duration period, absl::Duration limit,
                    std::function<void(const std::vector<Result>&)> changed) {
    StopRefresh();
    // The thread of the refresh has no context: on a machine with two kinds of GPU it
    // would find none.
    Environment own = options_.program;
    if (options_.find_program) FindGpu(&own);
    refresh_ = std::jthread([this, queries = std::move(queries), constraints, period, limit,
                             changed = std::move(changed),
                             own = std::move(own)](const std::stop_token& stop) {
      std::mutex mutex;
      std::condition_variable_any stopped;
      std::vector<Result> last(queries.size());
      while (!stop.stop_requested()) {
        try {
          std::vector<Result> now = Resolve(queries, SteadyTime::Now() + limit, constraints, own);
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
        std::unique_lock lock(mutex);
        stopped.wait_for(lock, stop, absl::ToChronoNanoseconds(period), [] { return false; });
      }
    });
  }

  void StopRefresh() { refresh_ = {}; }

 private:
  // What one Resolve is about.
  struct Call {
    const std::vector<Query>& queries;
    SteadyTime deadline;
    const Terms& terms;
    std::vector<Result>* results;
  };

  // The connection to where the daemon is now. Where nobody named the daemon, its socket is looked
  // for at each call, since it may come to be later.
  absl::StatusOr<std::shared_ptr<Client>> Connect() {
    MutexLock lock(mutex_);
    std::string address = NamedAddress();
    if (address.empty()) address = "unix:" + FirstSocket(ClientSocketPaths());
    if (client_ != nullptr && address == client_address_) return client_;
    Client::Options options;
    ASSIGN_OR_RETURN(options.address, Address::Parse(address));
    options.tls = {options_.tls_ca, options_.tls_cert, options_.tls_key};
    ASSIGN_OR_RETURN(std::unique_ptr<Client> client, Client::Create(options));
    client_ = std::move(client);
    client_address_ = std::move(address);
    return client_;
  }

  std::string NamedAddress() const {
    if (!options_.address.empty()) return options_.address;
    const char* const variable = std::getenv("CONVTUNE_ADDRESS");
    return variable != nullptr ? variable : "";
  }

  // Words for where the daemon was looked for; empty if somebody named it.
  std::string WhereLooked() const {
    if (!NamedAddress().empty()) return "";
    return absl::StrCat("; looked for ", absl::StrJoin(ClientSocketPaths(), ", "));
  }

  // Reads the snapshot. Each of its answers becomes a result, and each problem that it has no
  // answer for gets the reason. True if it answers all.
  bool AnswerFromSnapshot(const Call& call, const std::vector<size_t>& places,
                          SteadyTime deadline) const {
    if (loader_ == nullptr) return false;
    const auto snapshot = loader_->Get(deadline);
    const absl::StatusOr<const SnapshotAnswers::Part*> part =
        snapshot.ok() ? (*snapshot)->Choose(options_.environment, call.terms.program)
                      : snapshot.status();
    const bool other = snapshot.ok() && absl::IsNotFound(part.status());
    const Environment environment =
        part.ok() ? ToEnvironment(ToProto((*part)->environment)) : Environment();
    bool all = part.ok();
    for (const size_t place : places) {
      Result& result = (*call.results)[place];
      const absl::StatusOr<ConvProblem> problem = ConvProblem::Parse(call.queries[place].problem);
      if (!part.ok()) {
        if (other) result.miss = MissReason::kOtherEnvironment;
        result.message = std::string(part.status().message());
      } else if (!problem.ok()) {
        result.miss = MissReason::kRefused;
        result.message = std::string(problem.status().message());
        result.environment = environment;
      } else {
        result = ToResult((*snapshot)->Find(**part, *problem, call.terms), Source::kSnapshot,
                          environment);
        if (!result.found) result.source = Source::kNone;
      }
      all = all && result.found;
    }
    return all;
  }

  // Asks the daemon, and again while nobody answers. `enough` says whether that is needless; it may
  // take until the time that it is given. It is called once nobody answered the first time, and
  // where a daemon says nothing for half of the time: if it is true then, CANCELLED.
  absl::StatusOr<v1::BatchGetResponse> Ask(const v1::BatchGetRequest& request, SteadyTime deadline,
                                           const std::function<bool(SteadyTime)>& enough) {
    absl::Duration pause = kFirstPause;
    bool first = true;
    while (true) {
      const absl::Duration left = deadline - SteadyTime::Now();
      if (left <= absl::ZeroDuration()) return absl::UnavailableError("no answer within the limit");
      ASSIGN_OR_RETURN(const std::shared_ptr<Client> client, Connect());
      const absl::Duration half = left / 2;
      auto response = client->BatchGet(
          request, left, Client::Doubt{half, [&] { return enough(SteadyTime::Now() + half / 2); }});
      if (!absl::IsUnavailable(response.status())) return response;
      if (std::exchange(first, false) && enough(deadline)) return response;
      if (SteadyTime::Now() + pause >= deadline) return response;
      client->Pause(pause);
      pause = std::min(pause * 2, kLongestPause);
    }
  }

  void ResolvePart(const Call& call, std::vector<size_t> places) {
    v1::BatchGetRequest request = call.terms.request;
    while (!places.empty()) {
      request.clear_problems();
      for (const size_t place : places) {
        request.add_problems()->set_text(call.queries[place].problem);
      }
      bool answered = false;
      const auto from_snapshot = [&](SteadyTime deadline) {
        answered = AnswerFromSnapshot(call, places, deadline);
        return answered;
      };
      const auto response = Ask(request, call.deadline, from_snapshot);
      if (response.ok()) {
        const Environment environment = ToEnvironment(response->environment());
        for (size_t i = 0; i < places.size(); ++i) {
          (*call.results)[places[i]] =
              ToResult(response->results(static_cast<int>(i)), Source::kDaemon, environment);
        }
        return;
      }
      const bool nobody =
          absl::IsUnavailable(response.status()) || absl::IsDeadlineExceeded(response.status());
      if (absl::IsCancelled(response.status()) && answered) return;
      if (nobody && from_snapshot(call.deadline)) return;
      const auto refusals = RefusedProblems(response.status(), places.size());
      const std::map<size_t, std::string> refused(refusals.begin(), refusals.end());
      const std::string looked = nobody ? WhereLooked() : "";
      std::vector<size_t> left;
      for (size_t i = 0; i < places.size(); ++i) {
        Result& result = (*call.results)[places[i]];
        if (result.found) continue;
        if (!refused.empty()) {
          const auto rule = refused.find(i);
          if (rule == refused.end()) {
            left.push_back(places[i]);
          } else {
            result.miss = MissReason::kRefused;
            result.message = rule->second;
          }
          continue;
        }
        // The snapshot knows by itself that a text is no problem.
        if (result.miss == MissReason::kRefused) continue;
        const std::string snapshot = result.message.empty() ? "" : "; " + result.message;
        result.message = absl::StrCat(std::string(response.status().message()), looked, snapshot);
        result.problem = CanonicalOr(result.problem);
        if (result.miss != MissReason::kOtherEnvironment) {
          result.miss = nobody ? MissReason::kUnavailable : MissReason::kRefused;
        }
      }
      if (refused.empty()) return;
      // The others are asked again.
      places = std::move(left);
    }
  }

  const Options options_;
  Mutex mutex_;
  std::shared_ptr<Client> client_ GUARDED_BY(mutex_);
  std::string client_address_ GUARDED_BY(mutex_);
  std::unique_ptr<SnapshotLoader> loader_;  // null: no snapshot is used
  std::jthread refresh_;                    // the last: its end needs the others
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
    return impl_->Resolve(queries, SteadyTime::Now() + absl::FromChrono(limit), constraints);
  } catch (...) {
    return {};
  }
}

bool Resolver::StartRefresh(std::vector<Query> queries, const Constraints& constraints,
                            std::chrono::milliseconds period, std::chrono::milliseconds limit,
                            std::function<void(const std::vector<Result>&)> changed) noexcept {
  try {
    if (impl_ == nullptr) return false;
    impl_->StartRefresh(std::move(queries), constraints,
                        std::min(absl::FromChrono(period), absl::Hours(24 * 365)),
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
