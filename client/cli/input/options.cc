#include "client/cli/input/options.h"

#include <pwd.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "client/cli/output/units.h"
#include "proto/base/status_macros.h"
#include "proto/convert/record_codec.h"

namespace convtune::cli::input {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 50;

}  // namespace

std::string AuthorOf(const std::string& given) {
  if (!given.empty()) return given;
  const passwd* entry = getpwuid(geteuid());
  return entry != nullptr && entry->pw_name[0] != '\0' ? std::string(entry->pw_name)
                                                       : absl::StrCat("uid ", geteuid());
}

void BudgetArgs::Register(CLI::App& app) {
  app.add_option("--budget", budget_, "time for one problem, such as 2s")->type_name("TIME");
  app.add_option("--memory-budget", memory_budget_,
                 "GPU memory for tensors, workspace and flushing caches, such as 2GiB, beside what "
                 "CUDA's context and cuDNN take; 0: all that is free")
      ->type_name("SIZE");
  app.add_option("--wait-idle", wait_idle_,
                 "longest wait for a GPU that no other process uses, such as 5m")
      ->type_name("TIME");
}

absl::Status BudgetArgs::Fill(v1::TuningOptions* options) const {
  if (budget_) {
    ASSIGN_OR_RETURN(
        const absl::Duration budget,
        output::ParseTime("--budget", *budget_, absl::Milliseconds(10), absl::Hours(1)));
    *options->mutable_time_budget() = ToProto(budget);
  }
  if (wait_idle_) {
    ASSIGN_OR_RETURN(
        const absl::Duration wait,
        output::ParseTime("--wait-idle", *wait_idle_, absl::ZeroDuration(), absl::Hours(1)));
    *options->mutable_wait_idle() = ToProto(wait);
  }
  if (memory_budget_) {
    ASSIGN_OR_RETURN(const int64_t bytes, output::ParseBytes("--memory-budget", *memory_budget_));
    if (bytes > kMostBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("--memory-budget: must be at most 2^50 bytes, is '", *memory_budget_, "'"));
    }
    options->set_memory_budget_bytes(bytes);
  }
  return absl::OkStatus();
}

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
