#include "client/cli/input/constraint_args.h"

#include <CLI/CLI.hpp>
#include <cmath>

#include "client/cli/output/units.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::input {

void ConstraintArgs::Register(CLI::App& app) {
  const std::string group = "What an answer must keep to";
  app.add_option("--max-workspace", max_workspace_, "largest workspace, such as 64MiB; 0: none")
      ->type_name("SIZE")
      ->group(group);
  app.add_flag("--deterministic", deterministic_,
               "only candidates that give the same bits in every run")
      ->group(group);
  app.add_flag("--no-tf32", no_tf32_, "no candidates that use tensor cores for f32 inputs")
      ->group(group);
  app.add_flag("--no-down-convert", no_down_convert_, "no candidates that narrow inputs")
      ->group(group);
  app.add_flag("--no-winograd", no_winograd_, "no candidates by Winograd transform")->group(group);
  app.add_flag("--no-fft", no_fft_, "no candidates by Fourier transform")->group(group);
  app.add_flag("--no-reduced-precision", no_reduced_precision_,
               "no candidates that accumulate in a narrower type")
      ->group(group);
  app.add_option("--api", api_, "cuDNN's API that the caller uses")
      ->check(CLI::IsMember({"any", "graph", "legacy"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--launch", launch_,
                 "how the caller launches: from a stream, or captured into a CUDA graph")
      ->check(CLI::IsMember({"eager", "graph"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--max-error", max_error_,
                 "largest difference from the reference, in units of its largest value")
      ->type_name("X")
      ->group(group);
  app.add_option("--cache", cache_, "rank by times taken with caches that hold nothing, x, or all")
      ->check(CLI::IsMember({"cold", "input-hot", "hot"}))
      ->group(group);
}

absl::StatusOr<v1::Constraints> ConstraintArgs::ToProto() const {
  v1::Constraints constraints;
  if (max_workspace_) {
    ASSIGN_OR_RETURN(const int64_t bytes, output::ParseBytes("--max-workspace", *max_workspace_));
    constraints.set_max_workspace_bytes(bytes);
  }
  constraints.set_deterministic(deterministic_);
  constraints.set_forbid_tf32(no_tf32_);
  constraints.set_forbid_down_convert(no_down_convert_);
  constraints.set_forbid_winograd(no_winograd_);
  constraints.set_forbid_fft(no_fft_);
  constraints.set_forbid_reduced_precision_reduction(no_reduced_precision_);
  if (api_ == "graph") constraints.set_api(v1::API_GRAPH);
  if (api_ == "legacy") constraints.set_api(v1::API_LEGACY);
  if (launch_ == "graph") constraints.set_launch(v1::LAUNCH_MODE_GRAPH_CAPTURE);
  if (max_error_) {
    if (!std::isfinite(*max_error_) || *max_error_ < 0) {
      return absl::InvalidArgumentError("--max-error: must be a finite number of at least 0");
    }
    constraints.set_max_error(*max_error_);
  }
  if (cache_ == "cold") constraints.set_cache_state(v1::CACHE_STATE_COLD);
  if (cache_ == "input-hot") constraints.set_cache_state(v1::CACHE_STATE_INPUT_HOT);
  if (cache_ == "hot") constraints.set_cache_state(v1::CACHE_STATE_HOT);
  return constraints;
}

}  // namespace convtune::cli::input
