#include "client/cpp/resolver_convert.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "proto/convert/terms_proto.h"
#include "proto/model/violation.h"

namespace convtune::client {
namespace {

// The daemon's most; a channel takes more.
constexpr int64_t kMaxReplyBytes = 64 << 20;

// The API's enumerations have an UNSPECIFIED in front.
static_assert(static_cast<int>(Api::kGraph) + 1 == v1::API_GRAPH);
static_assert(static_cast<int>(LaunchMode::kGraphCapture) + 1 == v1::LAUNCH_MODE_GRAPH_CAPTURE);
static_assert(static_cast<int>(CacheState::kHot) == v1::CACHE_STATE_HOT);
static_assert(static_cast<int>(MissReason::kTooOld) + 1 == v1::MissReason_ARRAYSIZE);

void Fill(const Environment& program, v1::Environment* out, std::vector<Violation>* violations) {
  out->set_profile(program.profile);
  out->set_gpu_model(program.gpu_model);
  out->set_compute_capability(program.compute_capability);
  out->set_sm_count(program.sm_count);
  out->set_mig_profile(program.mig_profile);
  out->set_cudnn_version(program.cudnn_version);
  if (program.library_configuration.empty()) return;
  const auto library = ParseLibraryConfiguration(program.library_configuration);
  if (library) {
    out->set_library_configuration(static_cast<v1::LibraryConfiguration>(*library));
  } else {
    violations->push_back(
        {"program.library_configuration", "must be full, graph_jit_only or unknown"});
  }
}

void Fill(const Constraints& constraints, v1::Constraints* out) {
  if (constraints.max_workspace_bytes) {
    out->set_max_workspace_bytes(*constraints.max_workspace_bytes);
  }
  out->set_deterministic(constraints.deterministic);
  out->set_forbid_tf32(constraints.forbid_tf32);
  out->set_forbid_down_convert(constraints.forbid_down_convert);
  out->set_forbid_winograd(constraints.forbid_winograd);
  out->set_forbid_fft(constraints.forbid_fft);
  out->set_forbid_reduced_precision_reduction(constraints.forbid_reduced_precision_reduction);
  out->set_api(static_cast<v1::Api>(static_cast<int>(constraints.api) + 1));
  out->set_launch(static_cast<v1::LaunchMode>(static_cast<int>(constraints.launch) + 1));
  if (constraints.max_error) out->set_max_error(*constraints.max_error);
  out->set_cache_state(static_cast<v1::CacheState>(constraints.cache_state));
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

}  // namespace

absl::StatusOr<Terms> MakeTerms(const std::string& environment, const Environment& program,
                                const Constraints& constraints) {
  Terms terms;
  terms.request.set_environment(environment);
  terms.request.set_max_reply_bytes(kMaxReplyBytes);
  terms.request.set_min_evidence(static_cast<v1::Evidence>(constraints.min_evidence));
  if (constraints.max_age) {
    terms.request.mutable_max_age()->set_seconds(constraints.max_age->count());
  }
  std::vector<Violation> violations;
  Fill(constraints, terms.request.mutable_constraints());
  FieldRules rules(&violations);
  terms.constraints = ReadConstraints(terms.request.constraints(), &rules);
  Fill(program, terms.request.mutable_program(), &violations);
  terms.program =
      ReadProgram(terms.request.program(), &violations).value_or(convtune::Environment());
  if (!violations.empty()) return absl::InvalidArgumentError(ToString(violations));
  return terms;
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

Result ToResult(const v1::BatchGetResult& outcome, Source source, const Environment& environment) {
  Result result;
  result.problem = outcome.problem_text();
  result.source = source;
  result.environment = environment;
  if (!outcome.has_answer()) {
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
