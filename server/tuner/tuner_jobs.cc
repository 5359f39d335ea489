// The part of the tuner that makes and minds jobs.
#include <set>
#include <utility>

#include "proto/base/status_macros.h"
#include "server/tuner/tuner_impl.h"

namespace convtune {

bool TunerImpl::NeedsTuning(const ConvProblem& problem, const TuningKey& key,
                            const ResolvedEnvironment& environment,
                            const JobRequest& request) const {
  if (request.force) return true;
  const IndexHit known = index_.FindServing(problem, key);
  return known.tuning == nullptr || IsWorthTuning(*known.tuning, request.options, Evidence::kNone,
                                                  environment.environment.profile);
}

absl::StatusOr<JobSnapshot> TunerImpl::CreateJob(JobRequest request) {
  if (draining_) return absl::UnavailableError("the daemon is draining");
  ASSIGN_OR_RETURN(const ResolvedEnvironment environment, Resolve(request.environment));
  if (environment.queue == nullptr) {
    return absl::FailedPreconditionError("environment: no device of this daemon has it");
  }
  RETURN_IF_ERROR(environment.queue->CheckRoom(request.problems.size()));
  return QueueJob(environment, request);
}

JobSnapshot TunerImpl::QueueJob(const ResolvedEnvironment& environment, const JobRequest& request) {
  std::vector<WorkSpec> work;
  std::set<std::string> seen;
  for (const ConvProblem& problem : request.problems) {
    TuningKey key{problem.ToText(), environment.text};
    if (!seen.insert(key.problem_text).second) continue;
    if (!NeedsTuning(problem, key, environment, request)) continue;
    work.push_back({problem, std::move(key), WorkKind::kTune, request.options, request.force});
  }
  const int skipped = static_cast<int>(seen.size() - work.size());
  const JobTable::Created created = jobs_.Create(
      environment.environment.Name(), static_cast<int>(seen.size()), skipped, request.request_id);
  if (!created.is_new) return created.job;
  const std::string name = created.job.name;
  for (const WorkSpec& spec : work) {
    const std::string text = spec.key.problem_text;
    Subscriber subscriber;
    subscriber.done = [this, name, text](const WorkResult& result) {
      jobs_.ProblemDone(name, text, result);
    };
    subscriber.progress = [this, name, text](const WorkProgress& progress) {
      jobs_.Progress(name, text, progress);
    };
    const uint64_t number = environment.queue->Submit(
        spec, request.priority, std::move(subscriber),
        [&] { return NeedsTuning(spec.problem, spec.key, environment, request); });
    if (number == 0) {
      jobs_.ProblemSkipped(name);
    } else if (!jobs_.AddSubscription(name, number)) {
      // Ended already: the work is through, or the job was cancelled.
      environment.queue->Unsubscribe(number);
    }
  }
  return jobs_.Get(name).value_or(created.job);
}

absl::StatusOr<JobSnapshot> TunerImpl::GetJob(const std::string& name) { return jobs_.Get(name); }

absl::StatusOr<JobPage> TunerImpl::ListJobs(int page_size, const std::string& page_token) {
  return jobs_.List(page_size > 0 ? page_size : 100, page_token);
}

absl::StatusOr<JobSnapshot> TunerImpl::CancelJob(const std::string& name) {
  ASSIGN_OR_RETURN(const auto cancelled, jobs_.Cancel(name));
  const auto current = current_.find(cancelled.first.environment);
  if (current != current_.end()) {
    for (const uint64_t number : cancelled.second) current->second.queue->Unsubscribe(number);
  }
  return cancelled.first;
}

absl::StatusOr<uint64_t> TunerImpl::WatchJob(const std::string& name, JobCallback on_change) {
  return jobs_.Watch(name, std::move(on_change));
}

void TunerImpl::StopWatching(uint64_t token) { jobs_.StopWatching(token); }

}  // namespace convtune
