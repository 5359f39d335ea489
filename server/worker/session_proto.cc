#include "server/worker/session_proto.h"

#include <string>

namespace convtune::worker {
namespace {

template <typename Field>
void AddNotes(uint32_t mask, Field* field) {
  for (int number = 1; number < 32; ++number) {
    if ((mask >> number & 1U) != 0) {
      field->Add(number);
    }
  }
}

}  // namespace

std::optional<ListingDepth> DepthOf(worker::v1::Listing listing) {
  switch (listing) {
    case worker::v1::LISTING_STOCK:
      return ListingDepth::kStock;
    case worker::v1::LISTING_HEURISTICS:
      return ListingDepth::kHeuristics;
    case worker::v1::LISTING_EXHAUSTIVE:
      return ListingDepth::kExhaustive;
    default:
      return std::nullopt;
  }
}

// nullopt if a number is none that this worker knows.
std::optional<RunMode> ModeOf(const worker::v1::Measure& request) {
  RunMode mode;
  switch (request.launch()) {
    case 0:
    case static_cast<int>(LaunchMode::kEager):
      break;
    case static_cast<int>(LaunchMode::kGraphCapture):
      mode.launch = LaunchMode::kGraphCapture;
      break;
    default:
      return std::nullopt;
  }
  switch (request.cache_state()) {
    case 0:
    case static_cast<int>(CacheState::kInputHot):
      break;
    case static_cast<int>(CacheState::kCold):
      mode.cache_state = CacheState::kCold;
      break;
    case static_cast<int>(CacheState::kHot):
      mode.cache_state = CacheState::kHot;
      break;
    default:
      return std::nullopt;
  }
  return mode;
}

worker::v1::ListedCandidate ToProto(const Candidate& candidate, int index) {
  worker::v1::ListedCandidate listed;
  listed.set_index(index);
  listed.set_text(ToText(candidate.id));
  listed.set_heuristic_rank(candidate.heuristic_rank);
  AddNotes(candidate.numerical_notes, listed.mutable_numerical_notes());
  AddNotes(candidate.behavior_notes, listed.mutable_behavior_notes());
  listed.set_find_us(candidate.find_us);
  listed.set_workspace_bytes(candidate.workspace_bytes);
  listed.set_deterministic(candidate.deterministic);
  listed.set_error_message(candidate.error_message);
  return listed;
}

worker::v1::Prepared ToProto(int index, const absl::StatusOr<PreparedCandidate>& result,
                             absl::Duration build_time) {
  worker::v1::Prepared prepared;
  prepared.set_index(index);
  prepared.set_ok(result.ok() && !result->over_memory);
  prepared.set_build_us(absl::ToDoubleMicroseconds(build_time));
  if (result.ok()) {
    prepared.set_workspace_bytes(result->workspace_bytes);
    prepared.set_over_memory(result->over_memory);
  } else {
    prepared.set_over_memory(absl::IsResourceExhausted(result.status()));
    prepared.set_error_message(std::string(result.status().message()));
  }
  return prepared;
}

worker::v1::Checked ToProto(int index, const absl::StatusOr<CheckedRun>& run) {
  worker::v1::Checked checked;
  checked.set_index(index);
  if (!run.ok()) {
    checked.set_error_message(std::string(run.status().message()));
    checked.set_over_memory(absl::IsResourceExhausted(run.status()));
    return checked;
  }
  if (run->error.has_value()) {
    checked.set_error(*run->error);
  }
  checked.set_magnitude(run->magnitude);
  checked.set_nonfinite(run->nonfinite);
  checked.set_out_of_bounds(run->out_of_bounds);
  checked.set_capture(static_cast<int>(run->capture));
  checked.set_gpu_us(run->run.gpu_us);
  checked.set_host_us(run->run.host_us);
  checked.set_hopeless(run->hopeless);
  return checked;
}

worker::v1::Sample ToProto(int index, int round, const absl::StatusOr<TimedRun>& run) {
  worker::v1::Sample sample;
  sample.set_index(index);
  sample.set_round(round);
  if (run.ok()) {
    sample.set_gpu_us(run->gpu_us);
    sample.set_host_us(run->host_us);
    sample.set_sm_clock_mhz(run->sm_clock_mhz);
    sample.set_blocked(run->blocked);
  } else {
    sample.set_error_message(std::string(run.status().message()));
    sample.set_over_memory(absl::IsResourceExhausted(run.status()));
  }
  return sample;
}

worker::v1::Conditions ToProto(const ConditionsLook& look) {
  worker::v1::Conditions conditions;
  conditions.set_known(look.conditions.known);
  conditions.set_unknown_reason(look.unknown_reason);
  conditions.set_other_processes(look.conditions.other_processes);
  conditions.set_clock_reasons(look.conditions.clock_reasons);
  conditions.set_power_limit_watts(look.conditions.power_limit_watts);
  conditions.set_temperature_celsius(look.conditions.temperature_celsius);
  conditions.set_ecc_errors(look.conditions.ecc_errors);
  conditions.set_mig(look.conditions.mig);
  conditions.set_mps(look.conditions.mps);
  conditions.set_compute_mode(static_cast<int>(look.conditions.compute_mode));
  return conditions;
}

worker::v1::SelfCheck ToProto(const SelfCheck& check) {
  worker::v1::SelfCheck message;
  message.set_mask(ToMask(check));
  message.set_details(check.details);
  return message;
}

SelfCheck FromProto(const worker::v1::SelfCheck& check) {
  SelfCheck result = SelfCheckOfMask(check.mask());
  result.details = check.details();
  return result;
}

}  // namespace convtune::worker
