#include "db/snapshot/key_convert.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "convtune/v1/problem.pb.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/model/violation.h"

namespace convtune::snapshot {
namespace {

void Copy(const std::vector<int64_t>& from, int64_t* to) {
  std::copy(from.begin(), from.end(), to);
}

}  // namespace

absl::StatusOr<ProblemKey> ToKey(const ConvProblem& problem) {
  if (problem.epilogue().size() > size_t{kMaxEpilogue}) {
    return ViolationError(
        {"epilogue", Concat("must have at most 4 operations, has ", problem.epilogue().size())});
  }
  ProblemKey key = {};
  key.operation = static_cast<uint8_t>(problem.operation());
  key.data_type = static_cast<uint8_t>(problem.data_type());
  key.output_type = static_cast<uint8_t>(problem.output_type());
  key.compute_type = static_cast<uint8_t>(problem.compute_type());
  key.mode = static_cast<uint8_t>(problem.mode());
  key.spatial_rank = static_cast<uint8_t>(problem.spatial_rank());
  for (const EpilogueOp op : problem.epilogue()) {
    key.epilogue[key.epilogue_count++] = static_cast<uint8_t>(op);
  }
  if (key.epilogue_count > 0) {
    key.intermediate_type = static_cast<uint8_t>(problem.intermediate_type());
  }
  key.alignment = static_cast<uint16_t>(problem.alignment_bytes());
  key.sm_count_target = static_cast<uint16_t>(problem.sm_count_target());
  key.groups = problem.groups();
  Copy(problem.x_dims(), key.x_dims);
  Copy(problem.w_dims(), key.w_dims);
  Copy(problem.x_strides(), key.x_strides);
  Copy(problem.w_strides(), key.w_strides);
  Copy(problem.y_strides(), key.y_strides);
  Copy(problem.pad_low(), key.pad_low);
  Copy(problem.pad_high(), key.pad_high);
  Copy(problem.strides(), key.strides);
  Copy(problem.dilations(), key.dilations);
  return key;
}

absl::StatusOr<ConvProblem> ToProblem(const ProblemKey& key) {
  const int spatial = key.spatial_rank;
  // These two bound the loops below. All else is judged by Create, or by the comparison behind it.
  if (spatial < 2 || spatial > kMaxSpatial || key.epilogue_count > kMaxEpilogue) {
    return ViolationError({"problem", "must have 2 or 3 spatial dimensions and 0 to 4 operations"});
  }
  v1::ConvProblem given;
  const auto add_dims = [spatial](const int64_t* values, auto* out) {
    out->Add(values, values + spatial + 2);
  };
  const auto add_window = [spatial](const int64_t* values, auto* out) {
    out->Add(values, values + spatial);
  };
  given.set_operation(static_cast<v1::Operation>(key.operation));
  add_dims(key.x_dims, given.mutable_x_dims());
  add_dims(key.w_dims, given.mutable_w_dims());
  add_dims(key.x_strides, given.mutable_x_strides());
  add_dims(key.w_strides, given.mutable_w_strides());
  add_dims(key.y_strides, given.mutable_y_strides());
  add_window(key.pad_low, given.mutable_pad_low());
  add_window(key.pad_high, given.mutable_pad_high());
  add_window(key.strides, given.mutable_strides());
  add_window(key.dilations, given.mutable_dilations());
  given.set_groups(key.groups);
  given.set_data_type(static_cast<v1::DataType>(key.data_type));
  given.set_output_type(static_cast<v1::DataType>(key.output_type));
  given.set_compute_type(static_cast<v1::DataType>(key.compute_type));
  given.set_mode(static_cast<v1::ConvolutionMode>(key.mode));
  given.set_alignment_bytes(key.alignment);
  given.set_sm_count_target(key.sm_count_target);
  for (int i = 0; i < key.epilogue_count; ++i) {
    given.add_epilogue(static_cast<v1::EpilogueOp>(key.epilogue[i]));
  }
  if (key.epilogue_count > 0) {
    given.set_intermediate_type(static_cast<v1::DataType>(key.intermediate_type));
  }
  ASSIGN_OR_RETURN(ConvProblem problem, ConvProblem::Create(given));
  ASSIGN_OR_RETURN(const ProblemKey canonical, ToKey(problem));
  if (memcmp(&canonical, &key, sizeof key) != 0) {
    return ViolationError({"problem", "must be in canonical form"});
  }
  return problem;
}

absl::StatusOr<EnvironmentKey> ToKey(const Environment& environment) {
  EnvironmentKey key = {};
  const auto fits = [](int value, int most) { return value >= 0 && value <= most; };
  constexpr int kMaxByte = std::numeric_limits<uint8_t>::max();
  const CudnnVersion& cudnn = environment.cudnn;
  if (!fits(environment.cc_major, kMaxByte) || !fits(environment.cc_minor, kMaxByte)) {
    return ViolationError({"cc", "must be from 0.0 to 255.255"});
  }
  if (environment.sm_count < 0) {
    return ViolationError({"sms", "must not be negative"});
  }
  if (!fits(cudnn.major, 9999) || !fits(cudnn.minor, 99) || !fits(cudnn.patch, 99)) {
    return ViolationError({"cudnn", "must fit cuDNN's number: minor and patch from 0 to 99"});
  }
  key.profile = environment.profile ? 1 : 0;
  key.library = static_cast<uint8_t>(environment.library);
  key.cc_major = static_cast<uint8_t>(environment.cc_major);
  key.cc_minor = static_cast<uint8_t>(environment.cc_minor);
  key.sm_count = static_cast<uint32_t>(environment.sm_count);
  key.cudnn_version = static_cast<uint32_t>(cudnn.major * 10000 + cudnn.minor * 100 + cudnn.patch);
  const std::string slug = Slug(environment.gpu_model);
  if (!SetModelSlug(slug.data(), slug.size(), &key)) {
    return ViolationError(
        {"gpu_model", Concat("must have 1 to ", kMaxModelSlug, " letters, digits and dashes")});
  }
  if (environment.mig_profile.size() >= sizeof key.mig_profile) {
    return ViolationError({"mig", "must be at most 31 bytes"});
  }
  environment.mig_profile.copy(key.mig_profile, sizeof key.mig_profile);
  return key;
}

absl::StatusOr<Environment> ToEnvironment(const EnvironmentKey& key) {
  Environment environment;
  environment.profile = key.profile == 1;
  environment.library = static_cast<LibraryConfiguration>(key.library);
  environment.cc_major = key.cc_major;
  environment.cc_minor = key.cc_minor;
  environment.sm_count = static_cast<int>(key.sm_count);
  const auto version = static_cast<int>(key.cudnn_version % 100000000);
  environment.cudnn = {version / 10000, version % 10000 / 100, version % 100};
  environment.gpu_model.assign(key.gpu_model, strnlen(key.gpu_model, sizeof key.gpu_model));
  environment.mig_profile.assign(key.mig_profile, strnlen(key.mig_profile, sizeof key.mig_profile));
  // The text's own rules; the comparison finds the rest, bytes behind a text's end too.
  ASSIGN_OR_RETURN(environment, Environment::Parse(environment.ToText()));
  ASSIGN_OR_RETURN(const EnvironmentKey canonical, ToKey(environment));
  if (!(canonical == key)) {
    return ViolationError({"environment", "must be in canonical form"});
  }
  return environment;
}

Candidate ToCandidate(const SnapshotView& view, const SnapshotCandidate& stored) {
  Candidate candidate;
  if (stored.api == kApiLegacy) {
    candidate.id = LegacyAlgorithm{static_cast<int>(stored.number), stored.math_type};
  } else {
    EngineConfig& config = candidate.id.emplace<EngineConfig>(EngineConfig{stored.number, {}});
    const SnapshotKnob* knobs = view.knobs(stored);
    for (int i = 0; i < stored.knob_count; ++i) {
      config.knobs.emplace_back(knobs[i].type, knobs[i].value);
    }
  }
  candidate.numerical_notes = stored.numerical_notes;
  candidate.behavior_notes = stored.behavior_notes;
  candidate.workspace_bytes = stored.workspace_bytes;
  candidate.median_us = stored.time_us;
  candidate.status = stored.time_us > 0 ? CandidateStatus::kTimed : CandidateStatus::kFinalized;
  return candidate;
}

}  // namespace convtune::snapshot
