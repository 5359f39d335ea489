// The part of the tuner that has to do with what unmodified programs are served.
#include <algorithm>
#include <utility>

#include "proto/base/status_macros.h"
#include "server/tuner/tuner_impl.h"

namespace convtune {

absl::Status TunerImpl::StartPublisher() {
  if (options_.release_store == nullptr) return absl::OkStatus();
  Publisher::Options options;
  options.publish = options_.publish;
  options.store = options_.release_store;
  options.index = &index_;
  options.committer = &committer_;
  options.clock = options_.clock;
  options.await_index = [this](absl::Duration patience) { return loader_.Await(patience); };
  for (const auto& [name, current] : current_) options.current.push_back(current.environment);
  options.libraries = store_.now();
  options.complete = [this](const Environment& environment) { return Complete(environment); };
  options.resolve = [this](const std::string& name) -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(const ResolvedEnvironment resolved, Resolve(name));
    return resolved.text;
  };
  options.tune = [this](const TuningKey& key, std::function<void(const absl::Status&)> done) {
    return TuneIdle(key, std::move(done));
  };
  publisher_ = std::make_unique<Publisher>(std::move(options));
  committer_.SetObserver(
      [this](const TuningKey& key, bool override) { publisher_->NoteChange(key, override); });
  return publisher_->Start();
}

Environment TunerImpl::Complete(const Environment& environment) {
  const std::string text = environment.ToText();
  for (const auto& [name, current] : current_) {
    if (current.text == text) return current.environment;
  }
  MutexLock lock(stored_mutex_);
  const auto known =
      std::find_if(stored_.begin(), stored_.end(),
                   [&text](const Environment& stored) { return stored.ToText() == text; });
  if (known != stored_.end()) return *known;
  stored_.push_back(environment);
  ++stored_version_;
  return environment;
}

bool TunerImpl::TuneIdle(const TuningKey& key, std::function<void(const absl::Status&)> done) {
  const auto current = std::find_if(current_.begin(), current_.end(), [&key](const auto& entry) {
    return entry.second.text == key.environment_text;
  });
  if (draining_ || current == current_.end() || !current->second.queue->idle()) return false;
  absl::StatusOr<ConvProblem> problem = ConvProblem::Parse(key.problem_text);
  if (!problem.ok()) {
    done(problem.status());
    return true;
  }
  TuningOptions tuning_options;
  tuning_options.time_budget = options_.publish.wanted_budget;
  tuning_options.memory_budget_bytes = options_.publish.wanted_memory_budget_bytes;
  tuning_options.wait_idle = options_.publish.wanted_wait_idle;
  WorkSpec spec{*std::move(problem), key, WorkKind::kTune, tuning_options};
  Subscriber subscriber;
  subscriber.done = [done](const WorkResult& result) { done(result.status); };
  current->second.queue->Submit(std::move(spec), Priority::kIdle, std::move(subscriber),
                                [] { return true; });
  return true;
}

}  // namespace convtune
