#include "server/lookup/lookups.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "server/lookup/answer.h"

namespace convtune::lookup {
namespace {

// From when a caller's time is up to when its work is dropped, if it is not begun.
constexpr absl::Duration kAbandonedTimeout = absl::Minutes(10);

// The same number for requests that ask for the same, whatever their ids.
uint64_t FingerprintOf(const ResolvedEnvironment& environment,
                       const std::set<std::string>& problems, const jobs::JobRequest& request) {
  const jobs::TuningOptions& options = request.demand.options;
  return absl::HashOf(environment.text, problems, request.demand.max_age, request.priority,
                      options.time_budget, options.memory_budget_bytes, options.max_candidates,
                      options.search, options.api, options.wait_idle, options.all_timings,
                      options.list_only);
}

}  // namespace

LookupDecision Lookups::DecideRow(const Pending& pending, size_t row) const {
  if (const std::string& misfit = pending.environment.misfit; !misfit.empty()) {
    return {MakeMiss(v1::MISS_REASON_OTHER_ENVIRONMENT, misfit), std::nullopt};
  }
  const ConvProblem& problem = pending.request.problems[row];
  const TuningKey& key = pending.rows[row].key;
  const jobs::Demand& demand = pending.request.demand;
  const IndexHit known = index_->FindServing(problem, key, demand.OldestAt(pending.asked));
  return Decide(known, problem, demand, pending.environment.environment.profile, pending.asked,
                clock_->Now());
}

void Lookups::AddHint(const Pending& pending, size_t row, v1::Miss* miss) const {
  const TuningKey& key = pending.rows[row].key;
  auto hint = index_->Find(key).tuning;
  if (hint != nullptr && hint->stand_in != nullptr) hint = hint->stand_in->outdated;
  const bool misfit = !pending.environment.misfit.empty();
  const bool own = hint != nullptr && hint->tuning.has(IncompleteReason::kOutdated);
  if (!own && !misfit) hint = index_->FindHint(key);
  if (hint == nullptr) return;
  v1::BatchGetResult row_of_hint = MakeAnswer(*hint, nullptr, pending.request.demand.constraints,
                                              pending.request.problems[row], clock_->Now());
  if (!row_of_hint.has_answer()) return;
  v1::Answer& answer = *row_of_hint.mutable_answer();
  answer.set_environment_text(hint->tuning.key.environment_text());
  answer.set_note(
      own ? absl::StrCat("not exact: ", hint->tuning.incomplete_message)
          : absl::StrCat("not exact: holds for ", answer.environment_text(), ", not ",
                         misfit ? KnownText(pending.request.program) : key.environment_text,
                         answer.note().empty() ? "" : "; ", answer.note()));
  *miss->mutable_hint() = std::move(answer);
}

uint64_t Lookups::Start(LookupRequest request, const ResolvedEnvironment& environment,
                        LookupCallback done) {
  auto pending = std::make_shared<Pending>();
  pending->request = std::move(request);
  pending->environment = environment;
  pending->asked = clock_->Now();
  pending->done = std::move(done);
  const std::vector<ConvProblem>& problems = pending->request.problems;
  problems_ += static_cast<int64_t>(problems.size());
  pending->rows.resize(problems.size());
  absl::flat_hash_map<std::string, size_t> first_of;  // the first row of a problem's text
  std::vector<size_t> to_queue;
  int64_t hits = 0;
  for (size_t i = 0; i < problems.size(); ++i) {
    Row& row = pending->rows[i];
    row.key = {problems[i].ToText(), environment.text};
    // Before the index is asked: what changes meanwhile changes the stamp.
    const ChangeStamp stamp = index_->StampOf(row.key.problem_text);
    LookupDecision decision = DecideRow(*pending, i);
    row.result.row = std::move(decision.row);
    if (row.result.row.has_answer()) {
      ++hits;
      if (!decision.depends_on_time) row.result.stamp = stamp;
      continue;
    }
    v1::Miss& miss = *row.result.row.mutable_miss();
    const bool no_device = decision.work && environment.queue == nullptr;
    if (no_device) {
      miss.mutable_message()->append("; no device of this daemon has the environment");
      miss.set_reason(v1::MISS_REASON_NO_DEVICE);
    }
    misses_[static_cast<size_t>(miss.reason())].fetch_add(1, std::memory_order_relaxed);
    if (!decision.work || no_device) continue;
    if (pending->request.demand.on_miss == jobs::OnMiss::kEnqueue) {
      to_queue.push_back(i);
      continue;
    }
    row.waits_for = first_of.try_emplace(row.key.problem_text, i).first->second;
    if (row.waits_for != i) continue;
    row.work = decision.work;
    ++pending->open_work;
  }
  hits_ += hits;
  if (const size_t work = pending->open_work + to_queue.size(); work != 0) {
    if (const absl::Status room = environment.queue->CheckRoom(work); !room.ok()) {
      pending->done(room);
      return 0;
    }
  }
  if (!to_queue.empty()) {
    jobs::JobRequest job;
    for (const size_t i : to_queue) job.problems.push_back(problems[i]);
    job.demand = pending->request.demand;
    const std::string name = CreateJob(environment, job)->name();  // without an id it cannot fail
    for (const size_t i : to_queue) pending->rows[i].result.row.mutable_miss()->set_job(name);
  }
  if (pending->open_work == 0) {
    Reply(pending.get());
    return 0;
  }
  uint64_t token = 0;
  {
    MutexLock lock(mutex_);
    token = pending->token = next_token_++;
    pending_.emplace(token, pending);
  }
  for (size_t i = 0; i < problems.size(); ++i) {
    if (pending->rows[i].work) Submit(pending, i);
  }
  return token;
}

jobs::WorkSpec Lookups::WorkOn(const Pending& pending, size_t row) {
  const jobs::Demand& demand = pending.request.demand;
  const Row& of = pending.rows[row];
  return {pending.request.problems[row], of.key, *of.work, demand.options, demand.limits_age()};
}

void Lookups::Submit(const std::shared_ptr<Pending>& pending, size_t row) {
  jobs::Subscriber subscriber;
  subscriber.done = [this, pending, row](const jobs::WorkResult& result) {
    OnWorkEnded(pending, row, result.status);
  };
  jobs::TuningQueue& queue = *pending->environment.queue;
  const uint64_t number =
      queue.Submit(WorkOn(*pending, row), jobs::Priority::kInteractive, std::move(subscriber),
                   [&] { return DecideRow(*pending, row).work.has_value(); });
  if (number == 0) {
    OnWorkEnded(pending, row, absl::OkStatus());
    return;
  }
  {
    MutexLock lock(mutex_);
    if (pending_.contains(pending->token)) {
      // The work may have ended and been submitted anew in between: the newest counts.
      uint64_t& subscription = pending->rows[row].subscription;
      subscription = std::max(subscription, number);
      return;
    }
  }
  // The caller went away in between.
  queue.Unsubscribe(number);
}

void Lookups::OnWorkEnded(const std::shared_ptr<Pending>& pending, size_t row,
                          const absl::Status& status) {
  // The first configs may all break the constraints: then the rest is listed.
  const bool list_all = status.ok() && DecideRow(*pending, row).work == jobs::WorkKind::kListAll;
  bool again = false;
  {
    MutexLock lock(mutex_);
    if (!pending_.contains(pending->token)) return;
    Row& of = pending->rows[row];
    again = list_all && of.work == jobs::WorkKind::kFirstConfigs;
    if (again) {
      of.work = jobs::WorkKind::kListAll;
    } else {
      of.ended = status;
      if (--pending->open_work > 0) return;
      pending_.erase(pending->token);
    }
  }
  if (again) {
    Submit(pending, row);
  } else {
    Complete(pending.get());
  }
}

void Lookups::Complete(Pending* pending) {
  for (size_t i = 0; i < pending->rows.size(); ++i) {
    const std::optional<size_t> waits_for = pending->rows[i].waits_for;
    if (!waits_for) continue;
    const absl::Status& ended = *pending->rows[*waits_for].ended;
    // Only a queue that is shut ends work that somebody waits for like this.
    if (absl::IsCancelled(ended)) {
      pending->done(absl::UnavailableError("the daemon is draining"));
      return;
    }
    v1::BatchGetResult& row = pending->rows[i].result.row;
    row = DecideRow(*pending, i).row;
    if (row.has_answer()) {
      row.mutable_answer()->set_fresh(true);
    } else if (!ended.ok()) {
      row.mutable_miss()->set_reason(v1::MISS_REASON_TUNING_FAILED);
      row.mutable_miss()->set_message(std::string(ended.message()));
    }
  }
  Reply(pending);
}

void Lookups::Reply(Pending* pending) {
  LookupResponse response;
  response.environment = pending->environment.environment;
  response.results.reserve(pending->rows.size());
  for (size_t i = 0; i < pending->rows.size(); ++i) {
    const TuningKey& key = pending->rows[i].key;
    LookupResult& result = pending->rows[i].result;
    result.row.set_tuning_id(key.Digest().ToString());
    result.row.set_problem_text(key.problem_text);
    if (result.row.has_miss() && pending->request.include_hints) {
      AddHint(*pending, i, result.row.mutable_miss());
    }
    response.results.push_back(std::move(result));
  }
  pending->done(std::move(response));
}

void Lookups::End(uint64_t token, bool keep_work) {
  std::shared_ptr<Pending> pending;
  {
    MutexLock lock(mutex_);
    const auto found = pending_.find(token);
    if (found == pending_.end()) return;
    pending = std::move(found->second);
    pending_.erase(found);
  }
  const ResolvedEnvironment& environment = pending->environment;
  for (size_t i = 0; i < pending->rows.size(); ++i) {
    const Row& row = pending->rows[i];
    if (!row.work || row.ended || row.subscription == 0) continue;
    const std::optional<std::string> job =
        keep_work ? jobs_->Collect(environment.word) : std::nullopt;
    keep_work = job.has_value();
    if (keep_work) {
      // This caller's subscription holds it in the queue, unless it ended just now.
      jobs_->Submit(*job, environment.queue.get(), WorkOn(*pending, i), jobs::Priority::kIdle,
                    SteadyTime::Now() + kAbandonedTimeout, [] { return false; });
    }
    environment.queue->Unsubscribe(row.subscription);
  }
  pending->done(absl::CancelledError("the caller went away"));
}

absl::StatusOr<v1::TuningJob> Lookups::CreateJob(const ResolvedEnvironment& environment,
                                                 const jobs::JobRequest& request) {
  const jobs::Demand& demand = request.demand;
  const auto work_on = [&](const ConvProblem& problem, const TuningKey& key) {
    const absl::Time now = clock_->Now();
    return BetterWork(index_->FindServing(problem, key, demand.OldestAt(now)), demand,
                      environment.environment.profile, now);
  };
  std::vector<jobs::WorkSpec> work;
  std::set<std::string> seen;
  for (const ConvProblem& problem : request.problems) {
    TuningKey key{problem.ToText(), environment.text};
    if (!seen.insert(key.problem_text).second) continue;
    const std::optional<jobs::WorkKind> kind = work_on(problem, key);
    if (!kind.has_value()) continue;
    work.push_back({problem, std::move(key), *kind, demand.options, demand.limits_age()});
  }
  const int skipped = static_cast<int>(seen.size() - work.size());
  ASSIGN_OR_RETURN(const jobs::JobTable::Created created,
                   jobs_->Create(environment.word, static_cast<int>(seen.size()), skipped,
                                 request.request_id, FingerprintOf(environment, seen, request)));
  if (!created.is_new) return created.job;
  const std::string name = created.job.name();
  for (const jobs::WorkSpec& spec : work) {
    jobs_->Submit(name, environment.queue.get(), spec, request.priority,
                  SteadyTime::InfiniteFuture(),
                  [&] { return work_on(spec.problem, spec.key).has_value(); });
  }
  return jobs_->Get(name).value_or(created.job);
}

std::array<int64_t, kMissReasons> Lookups::misses() const {
  std::array<int64_t, kMissReasons> all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = misses_[i].load(std::memory_order_relaxed);
  return all;
}

int64_t Lookups::waiting() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(pending_.size());
}

}  // namespace convtune::lookup
