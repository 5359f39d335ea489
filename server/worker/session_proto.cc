#include "server/worker/session_proto.h"

#include <algorithm>
#include <string>

#include "proto/convert/record_codec.h"

namespace convtune::worker {

std::optional<ListingDepth> DepthOf(worker::v1::Listing listing) {
  switch (listing) {
    case worker::v1::LISTING_FIRST_CONFIGS:
      return ListingDepth::kFirstConfigs;
    case worker::v1::LISTING_HEURISTICS:
      return ListingDepth::kHeuristics;
    case worker::v1::LISTING_EXHAUSTIVE:
      return ListingDepth::kExhaustive;
    default:
      return std::nullopt;
  }
}

std::optional<RunMode> ModeOf(const worker::v1::Measure& request) {
  if (!convtune::v1::LaunchMode_IsValid(request.launch()) ||
      !convtune::v1::CacheState_IsValid(request.cache_state())) {
    return std::nullopt;
  }
  RunMode mode;
  if (request.launch() != 0) mode.launch = static_cast<LaunchMode>(request.launch());
  if (request.cache_state() != 0) mode.cache_state = static_cast<CacheState>(request.cache_state());
  mode.sample_us = std::max(0, request.sample_us());
  return mode;
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
    prepared.set_error_message(Utf8(std::string(result.status().message())));
  }
  return prepared;
}

worker::v1::Checked ToProto(int index, const absl::StatusOr<CheckedRun>& run) {
  worker::v1::Checked checked;
  checked.set_index(index);
  if (!run.ok()) {
    checked.set_error_message(Utf8(std::string(run.status().message())));
    checked.set_over_memory(absl::IsResourceExhausted(run.status()));
    return checked;
  }
  if (run->error.has_value()) {
    checked.set_error(*run->error);
  }
  checked.set_magnitude(run->magnitude);
  checked.set_nonfinite(run->nonfinite);
  checked.set_out_of_bounds(run->out_of_bounds);
  checked.set_capture(static_cast<convtune::v1::CaptureSupport>(run->capture));
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
    sample.set_error_message(Utf8(std::string(run.status().message())));
    sample.set_over_memory(absl::IsResourceExhausted(run.status()));
  }
  return sample;
}

}  // namespace convtune::worker
