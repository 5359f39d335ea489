#include "proto/convert/record_codec.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/model/text.h"

namespace convtune {
namespace {

constexpr int64_t kMinTimestampSeconds = -62135596800;  // 0001-01-01
constexpr int64_t kMaxTimestampSeconds = 253402300799;  // 9999-12-31
constexpr int64_t kMaxDurationSeconds = 315576000000;
// The text form of so many fits into the 4096 bytes that ParseCandidateId reads.
constexpr int kMaxKnobs = 100;

// The numbers of the bits that are set, in their order.
void FillBits(uint32_t mask, google::protobuf::RepeatedField<int>* out) {
  for (int bit = 0; mask != 0; ++bit, mask >>= 1) {
    if ((mask & 1) != 0) out->Add(bit);
  }
}

absl::Status Refuse(const char* field, const char* rule) { return ViolationError({field, rule}); }

absl::Status ReadBits(const google::protobuf::RepeatedField<int>& bits, const char* field,
                      uint32_t* mask) {
  *mask = 0;
  for (const int bit : bits) {
    if (bit < 0 || bit > 31 || (*mask & (1U << bit)) != 0) {
      return Refuse(field, "must be numbers from 0 to 31, each once");
    }
    *mask |= 1U << bit;
  }
  return absl::OkStatus();
}

void Fill(const TimeSummary& time, v1::TimeSummary* record) {
  record->set_launch(static_cast<v1::LaunchMode>(time.launch));
  record->set_cache_state(static_cast<v1::CacheState>(time.cache_state));
  record->set_median_us(static_cast<float>(time.median_us));
  record->set_low_us(static_cast<float>(time.low_us));
  record->set_high_us(static_cast<float>(time.high_us));
  record->set_sample_count(time.sample_count);
}

// ParseCandidateId can read the text form of what is taken.
absl::Status ReadId(const v1::Candidate& record, CandidateId* id) {
  if (record.has_legacy_algorithm()) {
    const v1::LegacyAlgorithm& legacy = record.legacy_algorithm();
    if (legacy.algorithm() < 0 || legacy.math_type() < 0) {
      return Refuse("legacy_algorithm", "must have numbers of at least 0");
    }
    *id = LegacyAlgorithm{legacy.algorithm(), legacy.math_type()};
    return absl::OkStatus();
  }
  if (!record.has_engine_config()) {
    return Refuse("kind", "must be an engine config or a legacy algorithm");
  }
  const v1::EngineConfig& proto = record.engine_config();
  const auto& types = proto.knob_types();
  if (proto.engine_index() < 0) {
    return Refuse("engine_config.engine_index", "must be at least 0");
  }
  if (types.size() != proto.knob_values_size() ||
      std::adjacent_find(types.begin(), types.end(), std::greater_equal<>()) != types.end()) {
    return Refuse("engine_config.knob_types", "must be in order, each once and with a value");
  }
  if (types.size() > kMaxKnobs || (!types.empty() && types.Get(0) < 0)) {
    return Refuse("engine_config.knob_types", "must be at most 100 numbers of at least 0");
  }
  EngineConfig config;
  config.engine_index = proto.engine_index();
  config.knobs.reserve(static_cast<size_t>(types.size()));
  for (int i = 0; i < types.size(); ++i) {
    config.knobs.emplace_back(types.Get(i), proto.knob_values(i));
  }
  *id = std::move(config);
  return absl::OkStatus();
}

// Cuts a place to the range. A bundle with a place beyond it was refused before (bundle_codec.cc).
int16_t ReadPlace(int place) {
  return static_cast<int16_t>(std::clamp(place, 0, HeuristicPlaces::kMost));
}

}  // namespace

std::string Utf8(std::string text) {
  if (IsValidUtf8(text)) return text;
  for (char& byte : text) {
    if ((static_cast<unsigned char>(byte) & 0x80) != 0) byte = '?';
  }
  return text;
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

absl::Time FromProto(const google::protobuf::Timestamp& proto) {
  return absl::FromUnixSeconds(
             std::clamp(proto.seconds(), kMinTimestampSeconds, kMaxTimestampSeconds)) +
         absl::Nanoseconds(proto.nanos());
}

absl::Duration FromProto(const google::protobuf::Duration& proto) {
  return absl::Seconds(std::clamp(proto.seconds(), -kMaxDurationSeconds, kMaxDurationSeconds)) +
         absl::Nanoseconds(proto.nanos());
}

v1::Provenance ToProto(const Provenance& provenance) {
  v1::Provenance proto;
  proto.set_driver_version(Utf8(provenance.driver_version));
  proto.set_cuda_version(Utf8(provenance.cuda_version));
  proto.set_gpu_uuid(Utf8(provenance.gpu_uuid));
  proto.set_node(Utf8(provenance.node));
  proto.set_memory_bytes(provenance.memory_bytes);
  proto.set_cublaslt_build(provenance.cublaslt_build);
  proto.set_nvrtc_build(provenance.nvrtc_build);
  return proto;
}

Provenance FromProto(const v1::Provenance& proto) {
  return {proto.driver_version(), proto.cuda_version(),   proto.gpu_uuid(),   proto.node(),
          proto.memory_bytes(),   proto.cublaslt_build(), proto.nvrtc_build()};
}

v1::SelfCheck ToProto(const SelfCheck& check) {
  v1::SelfCheck proto;
  proto.set_known(check.mask != 0);
  for (std::string& name : FailedInstruments(check.mask)) proto.add_failed(std::move(name));
  proto.set_details(Utf8(check.details));
  return proto;
}

SelfCheck FromProto(const v1::SelfCheck& proto) {
  return {SelfCheckFromProto(proto).value_or(0), proto.details()};
}

std::optional<uint32_t> SelfCheckFromProto(const v1::SelfCheck& proto) {
  if (!proto.known()) return proto.failed().empty() ? std::make_optional(0U) : std::nullopt;
  return MaskOfFailed({proto.failed().begin(), proto.failed().end()});
}

void Fill(const Candidate& candidate, bool with_samples, v1::Candidate* record) {
  if (const auto* engine = std::get_if<EngineConfig>(&candidate.id)) {
    v1::EngineConfig* config = record->mutable_engine_config();
    config->set_engine_index(engine->engine_index);
    for (const auto& [type, value] : engine->knobs) {
      config->add_knob_types(type);
      config->add_knob_values(value);
    }
  } else {
    const auto& legacy = std::get<LegacyAlgorithm>(candidate.id);
    record->mutable_legacy_algorithm()->set_algorithm(legacy.algorithm);
    record->mutable_legacy_algorithm()->set_math_type(legacy.math_type);
  }
  record->set_workspace_bytes(candidate.workspace_bytes);
  FillBits(candidate.numerical_notes, record->mutable_numerical_notes());
  FillBits(candidate.behavior_notes, record->mutable_behavior_notes());
  record->set_status(static_cast<v1::CandidateStatus>(candidate.status));
  record->set_median_us(static_cast<float>(candidate.median_us));
  record->set_q1_us(static_cast<float>(candidate.q1_us));
  record->set_q3_us(static_cast<float>(candidate.q3_us));
  record->set_low_us(static_cast<float>(candidate.low_us));
  record->set_high_us(static_cast<float>(candidate.high_us));
  record->set_sample_count(candidate.sample_count);
  if (!candidate.error_message.empty()) record->set_error_message(Utf8(candidate.error_message));
  record->set_heuristic_rank(candidate.heuristic_rank);
  record->set_mode_a_place(candidate.places.mode_a);
  record->set_mode_b_place(candidate.places.mode_b);
  record->set_fallback_place(candidate.places.fallback);
  record->set_find_us(static_cast<float>(candidate.find_us));
  record->set_host_us(static_cast<float>(candidate.host_us));
  record->set_sm_clock_mhz(static_cast<float>(candidate.sm_clock_mhz));
  if (candidate.error) record->set_error(static_cast<float>(*candidate.error));
  record->set_capture(static_cast<v1::CaptureSupport>(candidate.capture));
  for (const TimeSummary& time : candidate.other_times) Fill(time, record->add_other_times());
  if (with_samples) {
    record->mutable_samples_ns()->Add(candidate.samples_ns.begin(), candidate.samples_ns.end());
  }
}

void FillOutput(const Candidate& candidate, Operation operation, v1::Candidate* record) {
  record->set_text(ToText(candidate.id));
  record->set_deterministic(candidate.deterministic());
  if (const auto* legacy = std::get_if<LegacyAlgorithm>(&candidate.id)) {
    record->mutable_legacy_algorithm()->set_algorithm_name(
        LegacyAlgorithmName(operation, legacy->algorithm));
  }
}

void Fill(const Candidate& candidate, Operation operation, v1::Candidate* record) {
  Fill(candidate, /*with_samples=*/false, record);
  FillOutput(candidate, operation, record);
}

void Fill(const Conditions& conditions, v1::Conditions* record) {
  record->set_known(conditions.known);
  record->set_other_processes(conditions.other_processes);
  for (int bit = 0; bit < 32; ++bit) {
    const uint32_t reason = conditions.clock_reasons & (1U << bit);
    if (reason != 0) record->add_clock_reasons(static_cast<v1::ClockReason>(reason));
  }
  record->set_power_limit_watts(static_cast<float>(conditions.power_limit_watts));
  record->set_temperature_celsius(conditions.temperature_celsius);
  record->set_ecc_errors(conditions.ecc_errors);
  record->set_mig(conditions.mig);
  record->set_mps(conditions.mps);
  record->set_compute_mode(static_cast<v1::ComputeMode>(conditions.compute_mode));
  if (conditions.self_check != 0) {
    *record->mutable_self_check() = ToProto(SelfCheck{conditions.self_check, ""});
  }
  record->set_retried_runs(conditions.retried_runs);
  record->set_unblocked(Utf8(conditions.unblocked));
}

void Fill(const Tuning& tuning, bool with_samples, v1::Tuning* record) {
  record->mutable_candidates()->Reserve(static_cast<int>(tuning.candidates.size()));
  for (const Candidate& candidate : tuning.candidates) {
    Fill(candidate, with_samples, record->add_candidates());
  }
  record->set_evidence(static_cast<v1::Evidence>(tuning.evidence));
  record->set_origin(static_cast<v1::Origin>(tuning.origin));
  *record->mutable_tune_time() = ToProto(tuning.tune_time);
  *record->mutable_elapsed() = ToProto(tuning.elapsed);
  record->set_memory_budget_bytes(tuning.memory_budget_bytes);
  FillBits(tuning.incomplete_reasons, record->mutable_incomplete_reasons());
  record->set_incomplete_message(Utf8(tuning.incomplete_message));
  record->set_stop_reason(static_cast<v1::StopReason>(tuning.stop_reason));
  record->set_rounds(tuning.rounds);
  // Nothing is claimed of caches where nothing was timed.
  if (tuning.stop_reason != StopReason::kNone || tuning.cache_state != CacheState::kInputHot) {
    record->set_cache_state(static_cast<v1::CacheState>(tuning.cache_state));
  }
  if (tuning.conditions != Conditions{}) Fill(tuning.conditions, record->mutable_conditions());
  if (tuning.provenance != Provenance{}) {
    *record->mutable_provenance() = ToProto(tuning.provenance);
  }
}

absl::Status Read(const v1::Candidate& record, Candidate* candidate) {
  RETURN_IF_ERROR(ReadId(record, &candidate->id));
  RETURN_IF_ERROR(
      ReadBits(record.numerical_notes(), "numerical_notes", &candidate->numerical_notes));
  RETURN_IF_ERROR(ReadBits(record.behavior_notes(), "behavior_notes", &candidate->behavior_notes));
  if (!v1::CandidateStatus_IsValid(record.status()) || record.status() == 0) {
    return Refuse("status", "must be a CandidateStatus");
  }
  if (!v1::CaptureSupport_IsValid(record.capture())) {
    return Refuse("capture", "must be a CaptureSupport");
  }
  candidate->workspace_bytes = record.workspace_bytes();
  candidate->status = static_cast<CandidateStatus>(record.status());
  candidate->median_us = record.median_us();
  candidate->q1_us = record.q1_us();
  candidate->q3_us = record.q3_us();
  candidate->low_us = record.low_us();
  candidate->high_us = record.high_us();
  candidate->sample_count = record.sample_count();
  candidate->samples_ns.assign(record.samples_ns().begin(), record.samples_ns().end());
  candidate->error_message = record.error_message();
  candidate->heuristic_rank = record.heuristic_rank();
  candidate->places = {ReadPlace(record.mode_a_place()), ReadPlace(record.mode_b_place()),
                       ReadPlace(record.fallback_place())};
  candidate->find_us = record.find_us();
  candidate->host_us = record.host_us();
  candidate->sm_clock_mhz = record.sm_clock_mhz();
  candidate->error = record.has_error() ? std::optional<double>(record.error()) : std::nullopt;
  candidate->capture = static_cast<CaptureSupport>(record.capture());
  candidate->other_times.clear();
  candidate->other_times.reserve(static_cast<size_t>(record.other_times_size()));
  for (const v1::TimeSummary& time : record.other_times()) {
    if (!v1::LaunchMode_IsValid(time.launch()) || time.launch() == 0 ||
        !v1::CacheState_IsValid(time.cache_state()) || time.cache_state() == 0) {
      return Refuse("other_times", "must each name a LaunchMode and a CacheState");
    }
    candidate->other_times.push_back({static_cast<LaunchMode>(time.launch()),
                                      static_cast<CacheState>(time.cache_state()), time.median_us(),
                                      time.low_us(), time.high_us(), time.sample_count()});
  }
  return absl::OkStatus();
}

absl::Status Read(const v1::Conditions& record, Conditions* conditions) {
  const std::optional<uint32_t> self_check = SelfCheckFromProto(record.self_check());
  if (!self_check.has_value()) {
    return Refuse("conditions.self_check", "must name instruments, and none where it was not run");
  }
  if (!v1::ComputeMode_IsValid(record.compute_mode())) {
    return Refuse("conditions.compute_mode", "must be a ComputeMode");
  }
  conditions->known = record.known();
  conditions->other_processes = record.other_processes();
  conditions->clock_reasons = 0;
  for (const int reason : record.clock_reasons()) {
    conditions->clock_reasons |= static_cast<uint32_t>(reason);
  }
  conditions->power_limit_watts = record.power_limit_watts();
  conditions->temperature_celsius = record.temperature_celsius();
  conditions->ecc_errors = record.ecc_errors();
  conditions->mig = record.mig();
  conditions->mps = record.mps();
  conditions->compute_mode = static_cast<ComputeMode>(record.compute_mode());
  conditions->self_check = *self_check;
  conditions->retried_runs = record.retried_runs();
  conditions->unblocked = record.unblocked();
  return absl::OkStatus();
}

absl::Status Read(const v1::Tuning& record, Tuning* tuning) {
  if (!v1::Evidence_IsValid(record.evidence())) return Refuse("evidence", "must be an Evidence");
  if (!v1::Origin_IsValid(record.origin())) return Refuse("origin", "must be an Origin");
  if (!v1::StopReason_IsValid(record.stop_reason())) {
    return Refuse("stop_reason", "must be a StopReason");
  }
  if (!v1::CacheState_IsValid(record.cache_state())) {
    return Refuse("cache_state", "must be a CacheState");
  }
  RETURN_IF_ERROR(
      ReadBits(record.incomplete_reasons(), "incomplete_reasons", &tuning->incomplete_reasons));
  tuning->provenance = FromProto(record.provenance());
  tuning->evidence = static_cast<Evidence>(record.evidence());
  tuning->origin = record.origin() == v1::ORIGIN_UNSPECIFIED ? Origin::kLocal
                                                             : static_cast<Origin>(record.origin());
  tuning->tune_time = FromProto(record.tune_time());
  tuning->elapsed = FromProto(record.elapsed());
  tuning->memory_budget_bytes = record.memory_budget_bytes();
  tuning->incomplete_message = record.incomplete_message();
  tuning->stop_reason = static_cast<StopReason>(record.stop_reason());
  tuning->rounds = record.rounds();
  tuning->cache_state = record.cache_state() == v1::CACHE_STATE_UNSPECIFIED
                            ? CacheState::kInputHot
                            : static_cast<CacheState>(record.cache_state());
  tuning->conditions = {};
  if (record.has_conditions()) RETURN_IF_ERROR(Read(record.conditions(), &tuning->conditions));
  tuning->candidates.clear();
  tuning->candidates.resize(static_cast<size_t>(record.candidates_size()));
  for (int i = 0; i < record.candidates_size(); ++i) {
    absl::Status read = Read(record.candidates(i), &tuning->candidates[static_cast<size_t>(i)]);
    if (read.ok()) continue;
    std::optional<Violation> broken = ViolationIn(read);
    if (!broken.has_value()) return read;
    broken->field = absl::StrCat("candidates[", i, "].", broken->field);
    return ViolationError(*broken);
  }
  return absl::OkStatus();
}

}  // namespace convtune
