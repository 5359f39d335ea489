#include "server/lookup/lookups.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "server/decision/evidence.h"
#include "server/lookup/answer.h"

namespace convtune::lookup {

Lookups::Lookups(const TuningIndex* index, const Clock* clock, CreateJobFunction create_job,
                 KeepWorkFunction keep_work)
    : index_(index),
      clock_(clock),
      create_job_(std::move(create_job)),
      keep_work_(std::move(keep_work)) {}

LookupDecision Lookups::DecideRow(const Pending& pending, size_t row) const {
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
  absl::flat_hash_map<std::string, int> wait_of_problem;
  std::vector<Wait> waits;
  std::vector<size_t> to_queue;
  int64_t hits = 0;
  const auto count_miss = [this](v1::MissReason reason) {
    misses_[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  };
  for (size_t i = 0; i < problems.size(); ++i) {
    Row& row = pending->rows[i];
    row.key = {problems[i].ToText(), environment.text};
    if (!environment.misfit.empty()) {
      row.result.row = MakeMiss(v1::MISS_REASON_OTHER_ENVIRONMENT, environment.misfit);
      count_miss(v1::MISS_REASON_OTHER_ENVIRONMENT);
      continue;
    }
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
    count_miss(miss.reason());
    if (!decision.work || no_device) continue;
    if (pending->request.demand.on_miss == jobs::OnMiss::kEnqueue) {
      to_queue.push_back(i);
      continue;
    }
    const auto [it, is_new] =
        wait_of_problem.emplace(row.key.problem_text, static_cast<int>(waits.size()));
    if (is_new) waits.push_back({i, *decision.work, {}, 0, false});
    row.wait = it->second;
  }
  hits_ += hits;
  if (const size_t work = waits.size() + to_queue.size(); work != 0) {
    if (const absl::Status room = environment.queue->CheckRoom(work); !room.ok()) {
      pending->done(room);
      return 0;
    }
  }
  if (!to_queue.empty()) {
    std::vector<ConvProblem> queued;
    for (const size_t i : to_queue) queued.push_back(problems[i]);
    const std::string job = create_job_(environment, std::move(queued), pending->request.demand);
    for (const size_t i : to_queue) pending->rows[i].result.row.mutable_miss()->set_job(job);
  }
  if (waits.empty()) {
    Reply(pending.get());
    return 0;
  }
  const std::vector<Wait> to_submit = waits;
  uint64_t token = 0;
  {
    MutexLock lock(mutex_);
    token = next_token_++;
    pending->token = token;
    pending_.emplace(token, pending);
  }
  {
    MutexLock lock(pending->mutex);
    pending->open_waits = waits.size();
    pending->waits = std::move(waits);
  }
  for (size_t w = 0; w < to_submit.size(); ++w) {
    Submit(pending, w, to_submit[w].row, to_submit[w].kind);
  }
  return token;
}

void Lookups::Submit(const std::shared_ptr<Pending>& pending, size_t wait, size_t row,
                     jobs::WorkKind kind) {
  jobs::WorkSpec spec{pending->request.problems[row], pending->rows[row].key, kind,
                      pending->request.demand.options, pending->request.demand.limits_age()};
  jobs::Subscriber subscriber;
  subscriber.done = [this, pending, wait](const jobs::WorkResult& result) {
    OnWorkEnded(pending, wait, result);
  };
  jobs::TuningQueue* queue = pending->environment.queue;
  const uint64_t number =
      queue->Submit(std::move(spec), jobs::Priority::kInteractive, std::move(subscriber),
                    [&] { return DecideRow(*pending, row).work.has_value(); });
  if (number == 0) {
    OnWorkEnded(pending, wait, {});
    return;
  }
  {
    MutexLock lock(pending->mutex);
    // The work may have ended and been submitted anew in between: the newest counts.
    uint64_t& subscription = pending->waits[wait].subscription;
    subscription = std::max(subscription, number);
    if (!pending->finished) return;
  }
  // The caller went away in between.
  queue->Unsubscribe(number);
}

void Lookups::OnWorkEnded(const std::shared_ptr<Pending>& pending, size_t wait,
                          const jobs::WorkResult& result) {
  size_t row = 0;
  {
    MutexLock lock(pending->mutex);
    if (pending->finished || pending->waits[wait].ended) return;
    row = pending->waits[wait].row;
  }
  // The first configs may all break the constraints: then the rest is listed.
  bool again = false;
  if (result.status.ok() && DecideRow(*pending, row).work == jobs::WorkKind::kListAll) {
    MutexLock lock(pending->mutex);
    Wait& w = pending->waits[wait];
    again = w.kind == jobs::WorkKind::kFirstConfigs;
    w.kind = jobs::WorkKind::kListAll;
  }
  if (again) {
    Submit(pending, wait, row, jobs::WorkKind::kListAll);
    return;
  }
  {
    MutexLock lock(pending->mutex);
    Wait& w = pending->waits[wait];
    w.ended = true;
    w.result = result;
    if (pending->finished || --pending->open_waits > 0) return;
    pending->finished = true;
  }
  Complete(pending);
}

void Lookups::Complete(const std::shared_ptr<Pending>& pending) {
  {
    MutexLock lock(mutex_);
    pending_.erase(pending->token);
  }
  std::vector<Wait> waits;
  {
    MutexLock lock(pending->mutex);
    waits = pending->waits;
  }
  for (const Wait& wait : waits) {
    // Only a queue that is shut ends work that somebody waits for like this.
    if (absl::IsCancelled(wait.result.status)) {
      pending->done(absl::UnavailableError("the daemon is draining"));
      return;
    }
  }
  for (size_t i = 0; i < pending->rows.size(); ++i) {
    Row& row = pending->rows[i];
    if (row.wait < 0) continue;
    const jobs::WorkResult& result = waits[static_cast<size_t>(row.wait)].result;
    row.result.row = DecideRow(*pending, i).row;
    if (row.result.row.has_answer()) {
      row.result.row.mutable_answer()->set_fresh(true);
    } else if (!result.status.ok()) {
      v1::Miss& miss = *row.result.row.mutable_miss();
      miss.set_reason(v1::MISS_REASON_TUNING_FAILED);
      miss.set_message(std::string(result.status.message()));
    }
  }
  Reply(pending.get());
}

void Lookups::Reply(Pending* pending) {
  LookupResponse response;
  response.environment = pending->environment.environment;
  response.results.reserve(pending->rows.size());
  for (size_t i = 0; i < pending->rows.size(); ++i) {
    auto& [key, result, wait] = pending->rows[i];
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
    pending = found->second;
    pending_.erase(found);
  }
  std::vector<uint64_t> subscriptions;
  std::vector<jobs::WorkSpec> work;
  {
    MutexLock lock(pending->mutex);
    if (pending->finished) return;
    pending->finished = true;
    for (const Wait& wait : pending->waits) {
      if (wait.ended || wait.subscription == 0) continue;
      subscriptions.push_back(wait.subscription);
      work.push_back({pending->request.problems[wait.row], pending->rows[wait.row].key, wait.kind,
                      pending->request.demand.options, pending->request.demand.limits_age()});
    }
  }
  // While this caller's subscriptions hold it in the queue.
  if (keep_work) keep_work_(pending->environment, work);
  for (const uint64_t number : subscriptions) pending->environment.queue->Unsubscribe(number);
  pending->done(absl::CancelledError("the caller went away"));
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
