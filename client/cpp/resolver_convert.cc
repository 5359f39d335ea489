#include "client/cpp/resolver_convert.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "proto/model/violation.h"

namespace convtune::client {
namespace {

// The daemon's most; a channel takes more.
constexpr int64_t kMaxReplyBytes = 64 << 20;

v1::Environment ToProto(const Environment& program) {
  v1::Environment proto;
  proto.set_profile(program.profile);
  proto.set_gpu_model(program.gpu_model);
  proto.set_compute_capability(program.compute_capability);
  proto.set_sm_count(program.sm_count);
  proto.set_mig_profile(program.mig_profile);
  proto.set_cudnn_version(program.cudnn_version);
  proto.set_library_configuration(
      static_cast<v1::LibraryConfiguration>(ParseLibraryConfiguration(program.library_configuration)
                                                .value_or(LibraryConfiguration::kUnknown)));
  return proto;
}

}  // namespace

std::string RuleBroken(const Constraints& constraints) {
  if (constraints.max_workspace_bytes && *constraints.max_workspace_bytes < 0) {
    return "constraints.max_workspace_bytes: must be at least 0";
  }
  if (constraints.max_error &&
      !(std::isfinite(*constraints.max_error) && *constraints.max_error >= 0)) {
    return "constraints.max_error: must be a finite number of at least 0";
  }
  const int cache_state = static_cast<int>(constraints.cache_state);
  if (cache_state < 0 || cache_state > static_cast<int>(CacheState::kHot)) {
    return "constraints.cache_state: must be a CacheState";
  }
  return "";
}

convtune::Constraints ToModel(const Constraints& constraints) {
  convtune::Constraints model;
  model.max_workspace_bytes = constraints.max_workspace_bytes;
  model.deterministic = constraints.deterministic;
  model.forbid_tf32 = constraints.forbid_tf32;
  model.forbid_down_convert = constraints.forbid_down_convert;
  model.forbid_winograd = constraints.forbid_winograd;
  model.forbid_fft = constraints.forbid_fft;
  model.forbid_reduced_precision_reduction = constraints.forbid_reduced_precision_reduction;
  model.api = constraints.api == Api::kGraph    ? convtune::Api::kGraph
              : constraints.api == Api::kLegacy ? convtune::Api::kLegacy
                                                : convtune::Api::kAny;
  model.max_error = constraints.max_error;
  if (constraints.cache_state != CacheState::kDefault) {
    model.cache_state = static_cast<convtune::CacheState>(constraints.cache_state);
  }
  model.launch = constraints.launch == LaunchMode::kGraphCapture
                     ? convtune::LaunchMode::kGraphCapture
                     : convtune::LaunchMode::kEager;
  return model;
}

std::optional<convtune::Environment> ToModel(const Environment& program, std::string* broken) {
  std::vector<Violation> violations;
  if (!program.library_configuration.empty() &&
      !ParseLibraryConfiguration(program.library_configuration)) {
    violations.push_back({"library_configuration", "must be full, graph_jit_only or unknown"});
  }
  std::optional<convtune::Environment> model = ReadProgram(ToProto(program), &violations);
  if (violations.empty()) return model;
  for (Violation& violation : violations) violation.field = "program." + violation.field;
  *broken = ToString(violations);
  return std::nullopt;
}

Environment ToEnvironment(const convtune::Environment& environment) {
  Environment out;
  out.name = environment.Name();
  out.text = environment.ToText();
  out.profile = environment.profile;
  out.gpu_model = environment.gpu_model;
  out.compute_capability =
      std::to_string(environment.cc_major) + "." + std::to_string(environment.cc_minor);
  out.sm_count = environment.sm_count;
  out.mig_profile = environment.mig_profile;
  out.cudnn_version = environment.cudnn.ToText();
  out.library_configuration = std::string(Name(environment.library));
  return out;
}

Environment ToEnvironment(const v1::Environment& environment) {
  Environment out;
  out.name = environment.name();
  out.text = environment.text();
  out.profile = environment.profile();
  out.gpu_model = environment.gpu_model();
  out.compute_capability = environment.compute_capability();
  out.sm_count = environment.sm_count();
  out.mig_profile = environment.mig_profile();
  out.cudnn_version = environment.cudnn_version();
  out.library_configuration =
      std::string(Name(static_cast<LibraryConfiguration>(environment.library_configuration())));
  return out;
}

v1::BatchGetRequest ToRequest(const std::string& environment, const Environment& program,
                              const Constraints& constraints) {
  v1::BatchGetRequest request;
  request.set_environment(environment);
  request.set_max_reply_bytes(kMaxReplyBytes);
  *request.mutable_program() = ToProto(program);
  request.set_min_evidence(static_cast<v1::Evidence>(constraints.min_evidence));
  if (constraints.max_age) request.mutable_max_age()->set_seconds(constraints.max_age->count());
  v1::Constraints* out = request.mutable_constraints();
  if (constraints.max_workspace_bytes) {
    out->set_max_workspace_bytes(*constraints.max_workspace_bytes);
  }
  out->set_deterministic(constraints.deterministic);
  out->set_forbid_tf32(constraints.forbid_tf32);
  out->set_forbid_down_convert(constraints.forbid_down_convert);
  out->set_forbid_winograd(constraints.forbid_winograd);
  out->set_forbid_fft(constraints.forbid_fft);
  out->set_forbid_reduced_precision_reduction(constraints.forbid_reduced_precision_reduction);
  out->set_api(constraints.api == Api::kGraph    ? v1::API_GRAPH
               : constraints.api == Api::kLegacy ? v1::API_LEGACY
                                                 : v1::API_ANY);
  out->set_launch(constraints.launch == LaunchMode::kGraphCapture ? v1::LAUNCH_MODE_GRAPH_CAPTURE
                                                                  : v1::LAUNCH_MODE_EAGER);
  if (constraints.max_error) out->set_max_error(*constraints.max_error);
  out->set_cache_state(static_cast<v1::CacheState>(constraints.cache_state));
  return request;
}

Candidate ToCandidate(const convtune::Candidate& known) {
  Candidate candidate;
  candidate.text = ToText(known.id);
  candidate.graph = ApiOf(known.id) == convtune::Api::kGraph;
  if (const auto* config = std::get_if<EngineConfig>(&known.id); config != nullptr) {
    candidate.engine_index = config->engine_index;
    candidate.knobs.assign(config->knobs.begin(), config->knobs.end());
  } else {
    const auto& algorithm = std::get<LegacyAlgorithm>(known.id);
    candidate.algorithm = algorithm.algorithm;
    candidate.math_type = algorithm.math_type;
  }
  candidate.workspace_bytes = known.workspace_bytes;
  candidate.deterministic = known.deterministic();
  if (known.median_us > 0) candidate.median_us = known.median_us;
  return candidate;
}

Candidate ToCandidate(const v1::Candidate& message) {
  Candidate candidate;
  candidate.text = message.text();
  candidate.graph = message.has_engine_config();
  candidate.engine_index = message.engine_config().engine_index();
  const v1::EngineConfig& config = message.engine_config();
  for (int i = 0; i < std::min(config.knob_types_size(), config.knob_values_size()); ++i) {
    candidate.knobs.emplace_back(config.knob_types(i), config.knob_values(i));
  }
  candidate.algorithm = message.legacy_algorithm().algorithm();
  candidate.math_type = message.legacy_algorithm().math_type();
  candidate.workspace_bytes = message.workspace_bytes();
  candidate.deterministic = message.deterministic();
  if (message.median_us() > 0) candidate.median_us = message.median_us();
  return candidate;
}

Result ToResult(const v1::BatchGetResult& outcome) {
  Result result;
  result.problem = outcome.problem_text();
  result.source = Source::kDaemon;
  if (!outcome.has_answer()) {
    static_assert(static_cast<int>(MissReason::kTooOld) + 1 == v1::MissReason_ARRAYSIZE);
    result.miss = static_cast<MissReason>(outcome.miss().reason());
    result.job = outcome.miss().job();
    result.message = outcome.miss().message();
    return result;
  }
  const v1::Answer& answer = outcome.answer();
  result.found = true;
  result.winner = ToCandidate(answer.winner());
  for (const v1::Candidate& candidate : answer.portfolio()) {
    result.portfolio.push_back(ToCandidate(candidate));
  }
  result.evidence = static_cast<Evidence>(answer.evidence());
  return result;
}

}  // namespace convtune::client
