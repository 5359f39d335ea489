#include "server/rpc/messages/proto_converter.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "proto/convert/problem_proto.h"
#include "proto/convert/record_codec.h"
#include "proto/model/tuning/self_check.h"

namespace convtune::rpc::messages {
namespace {

constexpr int64_t kMinTimestampSeconds = -62135596800;  // 0001-01-01
constexpr int64_t kMaxTimestampSeconds = 253402300799;  // 9999-12-31
constexpr int64_t kMaxDurationSeconds = 315576000000;

// One entry for each bit that the API has a name for, in order of number.
template <typename ProtoEnum>
void AddNotes(uint32_t mask, google::protobuf::RepeatedField<int>* out) {
  const auto* descriptor = google::protobuf::GetEnumDescriptor<ProtoEnum>();
  for (int i = 0; i < descriptor->value_count(); ++i) {
    const int number = descriptor->value(i)->number();
    if (number != 0 && (mask & (1U << number)) != 0) {
      out->Add(number);
    }
  }
}

v1::TimeSummary TimeToProto(const TimeSummary& time) {
  v1::TimeSummary out;
  out.set_launch(static_cast<v1::LaunchMode>(time.launch));
  out.set_cache_state(static_cast<v1::CacheState>(time.cache_state));
  out.set_median_us(time.median_us);
  out.set_low_us(time.low_us);
  out.set_high_us(time.high_us);
  out.set_sample_count(time.sample_count);
  return out;
}

v1::SelfCheck SelfCheckToProto(uint32_t mask) {
  v1::SelfCheck out;
  out.set_known(mask != 0);
  for (const std::string& name : FailedInstruments(mask)) {
    out.add_failed(name);
  }
  return out;
}

v1::Conditions ConditionsToProto(const Conditions& conditions) {
  v1::Conditions out;
  if (conditions.self_check != 0) {
    *out.mutable_self_check() = SelfCheckToProto(conditions.self_check);
  }
  out.set_known(conditions.known);
  for (const std::string& mark : Marks(conditions)) {
    out.add_marks(mark);
  }
  out.set_other_processes(conditions.other_processes);
  for (const std::string& name : ClockReasonNames(conditions.clock_reasons)) {
    out.add_clock_reasons(name);
  }
  out.set_power_limit_watts(conditions.power_limit_watts);
  out.set_temperature_celsius(conditions.temperature_celsius);
  out.set_ecc_errors(conditions.ecc_errors);
  out.set_mig(conditions.mig);
  out.set_mps(conditions.mps);
  if (conditions.compute_mode != ComputeMode::kUnknown) {
    out.set_compute_mode(std::string(Name(conditions.compute_mode)));
  }
  return out;
}

}  // namespace

Operation OperationOf(const TuningKey& key) {
  const std::string_view text = key.problem_text;
  return ParseOperation(text.substr(0, text.find(','))).value_or(Operation::kFwd);
}

google::protobuf::Timestamp ToProto(absl::Time time) {
  const absl::Time clamped = std::clamp(time, absl::FromUnixSeconds(kMinTimestampSeconds),
                                        absl::FromUnixSeconds(kMaxTimestampSeconds));
  const int64_t seconds = absl::ToUnixSeconds(clamped);  // floors
  google::protobuf::Timestamp out;
  out.set_seconds(seconds);
  out.set_nanos(
      static_cast<int32_t>(absl::ToInt64Nanoseconds(clamped - absl::FromUnixSeconds(seconds))));
  return out;
}

google::protobuf::Duration ToProto(absl::Duration duration) {
  const absl::Duration limit = absl::Seconds(kMaxDurationSeconds);
  absl::Duration rest = std::clamp(duration, -limit, limit);
  google::protobuf::Duration out;
  out.set_seconds(absl::IDivDuration(rest, absl::Seconds(1), &rest));
  out.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  return out;
}

tuner::EnvironmentInfo FindEnvironment(const std::vector<tuner::EnvironmentInfo>& known,
                                       const std::string& text) {
  const auto found = std::find_if(
      known.begin(), known.end(),
      [&](const tuner::EnvironmentInfo& info) { return info.environment.ToText() == text; });
  if (found != known.end()) {
    return *found;
  }
  tuner::EnvironmentInfo info;
  info.environment = Environment::Parse(text).value_or(Environment());
  return info;
}

v1::Environment ToProto(const tuner::EnvironmentInfo& info) {
  const Environment& environment = info.environment;
  v1::Environment out;
  out.set_name(environment.Name());
  out.set_text(environment.ToText());
  out.set_profile(environment.profile);
  out.set_gpu_model(environment.gpu_model);
  out.set_compute_capability(absl::StrCat(environment.cc_major, ".", environment.cc_minor));
  out.set_sm_count(environment.sm_count);
  out.set_mig_profile(environment.mig_profile);
  out.set_cudnn_version(environment.cudnn.ToText());
  out.set_library_configuration(static_cast<v1::LibraryConfiguration>(environment.library));
  *out.mutable_provenance() = ToProto(info.provenance);
  out.set_current(info.current);
  out.set_tuning_count(info.tuning_count);
  return out;
}

namespace {

void Fill(const Candidate& candidate, Operation operation, bool with_samples,
          v1::Candidate* message) {
  v1::Candidate& out = *message;
  if (const auto* engine = std::get_if<EngineConfig>(&candidate.id)) {
    v1::EngineConfig* config = out.mutable_engine_config();
    config->set_engine_index(engine->engine_index);
    for (const auto& [type, value] : engine->knobs) {
      v1::KnobChoice* knob = config->add_knobs();
      knob->set_type(type);
      knob->set_value(value);
    }
  } else {
    const auto& legacy = std::get<LegacyAlgorithm>(candidate.id);
    v1::LegacyAlgorithm* algorithm = out.mutable_legacy_algorithm();
    algorithm->set_algorithm(legacy.algorithm);
    algorithm->set_math_type(legacy.math_type);
    algorithm->set_algorithm_name(LegacyAlgorithmName(operation, legacy.algorithm));
  }
  out.set_text(ToText(candidate.id));
  out.set_workspace_bytes(candidate.workspace_bytes);
  AddNotes<v1::NumericalNote>(candidate.numerical_notes, out.mutable_numerical_notes());
  AddNotes<v1::BehaviorNote>(candidate.behavior_notes, out.mutable_behavior_notes());
  out.set_deterministic(candidate.deterministic);
  out.set_status(static_cast<v1::CandidateStatus>(candidate.status));
  if (candidate.timed()) {
    out.set_median_us(candidate.median_us);
    out.set_q1_us(candidate.q1_us);
    out.set_q3_us(candidate.q3_us);
    out.set_low_us(candidate.low_us);
    out.set_high_us(candidate.high_us);
  }
  if (with_samples) {
    out.mutable_samples_us()->Add(candidate.samples_us.begin(), candidate.samples_us.end());
  }
  out.set_sample_count(candidate.sample_count);
  out.set_error_message(candidate.error_message);
  out.set_heuristic_rank(candidate.heuristic_rank);
  out.set_find_us(candidate.find_us);
  out.set_host_us(candidate.host_us);
  out.set_sm_clock_mhz(candidate.sm_clock_mhz);
  if (candidate.error) {
    out.set_error(*candidate.error);
  }
  out.set_capture(static_cast<v1::CaptureSupport>(candidate.capture));
  for (const TimeSummary& time : candidate.other_times) {
    *out.add_other_times() = TimeToProto(time);
  }
}

void Fill(const lookup::Answer& answer, Operation operation, v1::Answer* message) {
  v1::Answer& out = *message;
  Fill(answer.winner, operation, /*with_samples=*/false, out.mutable_winner());
  for (const Candidate& candidate : answer.portfolio) {
    Fill(candidate, operation, /*with_samples=*/false, out.add_portfolio());
  }
  for (const Candidate& candidate : answer.runners_up) {
    Fill(candidate, operation, /*with_samples=*/false, out.add_runners_up());
  }
  out.set_evidence(static_cast<v1::Evidence>(answer.evidence));
  out.set_origin(static_cast<v1::Origin>(answer.origin));
  out.set_pinned(answer.pinned);
  out.set_pin_reason(answer.pin_reason);
  out.set_environment(answer.environment_name);
  *out.mutable_tune_time() = ToProto(answer.tune_time);
  out.set_candidate_count(answer.candidate_count);
  out.set_eligible_count(answer.eligible_count);
  out.set_tuning_id(answer.tuning_id);
  out.set_persisted(answer.persisted);
  out.set_fresh(answer.fresh);
  out.set_note(answer.note);
}

void Fill(const lookup::Miss& miss, Operation operation, v1::Miss* message) {
  v1::Miss& out = *message;
  out.set_reason(static_cast<v1::MissReason>(miss.reason));
  out.set_message(miss.message);
  out.set_job(miss.job);
  if (miss.hint.has_value()) {
    Fill(*miss.hint, operation, out.mutable_hint());
  }
}

void AddReasons(uint32_t incomplete, v1::Tuning* out) {
  for (int reason = v1::IncompleteReason_MIN + 1; reason <= v1::IncompleteReason_MAX; ++reason) {
    if ((incomplete & ReasonBit(static_cast<IncompleteReason>(reason))) == 0) continue;
    out->add_incomplete(static_cast<v1::IncompleteReason>(reason));
  }
}

}  // namespace

v1::Quarantine ToProto(const QuarantineEntry& entry) {
  v1::Quarantine out;
  out.set_candidate(ToText(entry.candidate));
  out.set_reason(static_cast<v1::QuarantineReason>(entry.reason));
  out.set_message(entry.message);
  *out.mutable_create_time() = ToProto(entry.create_time);
  if (entry.reason == QuarantineReason::kHung) {
    *out.mutable_hang_budget() = ToProto(entry.hang_budget);
  }
  out.set_checker_version(entry.checker_version);
  return out;
}

v1::Candidate ToProto(const Candidate& candidate, Operation operation, bool with_samples) {
  v1::Candidate out;
  Fill(candidate, operation, with_samples, &out);
  return out;
}

void Fill(const lookup::LookupResult& result, v1::BatchGetResult* message) {
  message->set_tuning_id(result.key.Digest().ToString());
  message->set_problem_text(result.key.problem_text);
  const Operation operation = OperationOf(result.key);
  if (const auto* answer = std::get_if<lookup::Answer>(&result.outcome)) {
    Fill(*answer, operation, message->mutable_answer());
  } else {
    Fill(std::get<lookup::Miss>(result.outcome), operation, message->mutable_miss());
  }
}

v1::Tuning ToProto(const Tuning& tuning, const tuner::EnvironmentInfo& environment) {
  v1::Tuning out;
  out.set_id(tuning.key.Digest().ToString());
  if (absl::StatusOr<ConvProblem> problem = ConvProblem::Parse(tuning.key.problem_text);
      problem.ok()) {
    *out.mutable_problem() = ProblemToProto(*problem);
  }
  out.set_problem_text(tuning.key.problem_text);
  *out.mutable_environment() = ToProto(environment);
  const Operation operation = OperationOf(tuning.key);
  for (const Candidate& candidate : tuning.candidates) {
    Fill(candidate, operation, /*with_samples=*/true, out.add_candidates());
  }
  if (const std::optional<size_t> stock = StockIndex(tuning.candidates); stock.has_value()) {
    out.mutable_candidates(static_cast<int>(*stock))->set_stock(true);
  }
  out.set_candidate_count(static_cast<int>(tuning.candidates.size()));
  out.set_evidence(static_cast<v1::Evidence>(tuning.evidence));
  out.set_origin(static_cast<v1::Origin>(tuning.origin));
  *out.mutable_tune_time() = ToProto(tuning.tune_time);
  *out.mutable_elapsed() = ToProto(tuning.elapsed);
  out.set_memory_budget_bytes(tuning.memory_budget_bytes);
  out.set_incomplete_reason(tuning.incomplete_reason);
  AddReasons(tuning.incomplete, &out);
  if (tuning.stop_reason != StopReason::kNone) {
    out.set_stop_reason(static_cast<v1::StopReason>(tuning.stop_reason));
    out.set_rounds(tuning.rounds);
    out.set_cache_state(static_cast<v1::CacheState>(tuning.cache_state));
  }
  if (tuning.stop_reason != StopReason::kNone || tuning.conditions.self_check != 0) {
    *out.mutable_conditions() = ConditionsToProto(tuning.conditions);
  }
  // Ranked: the first that ran wins without constraints.
  const auto winner = std::find_if(tuning.candidates.begin(), tuning.candidates.end(),
                                   [](const Candidate& candidate) { return candidate.usable(); });
  if (winner != tuning.candidates.end()) {
    out.set_winner(ToText(winner->id));
  }
  return out;
}

v1::Tuning ToProto(const tuner::TuningSummary& summary, const tuner::EnvironmentInfo& environment) {
  v1::Tuning out;
  out.set_id(summary.key.Digest().ToString());
  if (absl::StatusOr<ConvProblem> problem = ConvProblem::Parse(summary.key.problem_text);
      problem.ok()) {
    *out.mutable_problem() = ProblemToProto(*problem);
  }
  out.set_problem_text(summary.key.problem_text);
  *out.mutable_environment() = ToProto(environment);
  out.set_candidate_count(summary.candidate_count);
  out.set_evidence(static_cast<v1::Evidence>(summary.evidence));
  out.set_origin(static_cast<v1::Origin>(summary.origin));
  *out.mutable_tune_time() = ToProto(summary.tune_time);
  *out.mutable_elapsed() = ToProto(summary.elapsed);
  out.set_incomplete_reason(summary.incomplete_reason);
  AddReasons(summary.incomplete, &out);
  out.set_winner(summary.winner);
  return out;
}

v1::TuningJob ToProto(const jobs::JobSnapshot& job) {
  v1::TuningJob out;
  out.set_name(job.name);
  out.set_state(static_cast<v1::JobState>(job.state));
  out.set_environment(job.environment);
  out.set_problem_count(job.problem_count);
  out.set_succeeded_count(job.succeeded_count);
  out.set_failed_count(job.failed_count);
  out.set_skipped_count(job.skipped_count);
  out.set_current_problem(job.current_problem);
  out.set_current_candidates_done(job.current_candidates_done);
  out.set_current_candidates_total(job.current_candidates_total);
  out.mutable_failures()->Add(job.failures.begin(), job.failures.end());
  *out.mutable_create_time() = ToProto(job.create_time);
  if (job.end_time.has_value()) {
    *out.mutable_end_time() = ToProto(*job.end_time);
  }
  out.set_persisted(job.persisted);
  return out;
}

v1::ListTuningJobsResponse ToProto(const jobs::JobPage& page) {
  v1::ListTuningJobsResponse out;
  for (const jobs::JobSnapshot& job : page.jobs) {
    *out.add_jobs() = ToProto(job);
  }
  out.set_next_page_token(page.next_page_token);
  return out;
}

v1::PinRecord ToProto(const Pin& pin, std::string_view environment) {
  v1::PinRecord out;
  out.set_problem_text(pin.key.problem_text);
  out.set_environment(std::string(environment));
  out.set_candidate(ToText(pin.candidate));
  out.set_reason(pin.reason);
  *out.mutable_create_time() = ToProto(pin.create_time);
  if (pin.expire_time.has_value()) {
    *out.mutable_expire_time() = ToProto(*pin.expire_time);
  }
  return out;
}

v1::Device ToProto(const supervisor::DeviceStatus& device) {
  v1::Device out;
  out.set_name(device.name);
  out.set_environment(device.environment);
  out.set_state(static_cast<v1::DeviceState>(device.state));
  out.set_reason(device.reason);
  out.set_worker_pid(device.worker_pid);
  out.set_worker_starts(device.worker_starts);
  out.set_worker_deaths(device.worker_deaths);
  if (device.self_check.known) {
    *out.mutable_self_check() = SelfCheckToProto(ToMask(device.self_check));
    out.mutable_self_check()->set_details(device.self_check.details);
  }
  return out;
}

v1::CheckDatabaseResponse ToProto(const db::StoreCheck& check, absl::Duration elapsed) {
  v1::CheckDatabaseResponse out;
  out.set_ok(check.problems.empty());
  out.mutable_problems()->Add(check.problems.begin(), check.problems.end());
  out.set_rows_checked(check.rows_checked);
  *out.mutable_elapsed() = ToProto(elapsed);
  return out;
}

v1::CompactDatabaseResponse ToProto(const db::StoreCompaction& compaction) {
  v1::CompactDatabaseResponse out;
  out.set_bytes_before(compaction.bytes_before);
  out.set_bytes_after(compaction.bytes_after);
  out.set_thinned(compaction.thinned);
  return out;
}

void AddStats(const tuner::TunerStats& stats, v1::ServerInfo* info) {
  info->set_tuning_count(stats.tuning_count);
  info->set_writable(stats.writable);
  info->set_lookups(stats.lookups);
  info->set_hits(stats.hits);
  info->set_worker_requests(stats.worker_requests);
  info->set_worker_starts(stats.worker_starts);
  info->set_queue_depth(stats.queue_depth);
  info->set_waiting_callers(stats.waiting_callers);
}

}  // namespace convtune::rpc::messages
