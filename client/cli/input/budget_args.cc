#include "client/cli/input/budget_args.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "client/cli/output/units.h"
#include "proto/base/status_macros.h"
#include "proto/convert/record_codec.h"

namespace convtune::cli::input {
namespace {

constexpr absl::Duration kLongestWait = absl::Hours(1);
constexpr int64_t kMostBytes = int64_t{1} << 50;

// Reads --budget. INVALID_ARGUMENT if it is no time from 10ms to 1h.
absl::Status SetTimeBudget(const std::string& text, v1::TuningOptions* options) {
  ASSIGN_OR_RETURN(const absl::Duration budget, output::ParseTime("--budget", text));
  if (budget < absl::Milliseconds(10) || budget > absl::Hours(1)) {
    return absl::InvalidArgumentError("--budget: must be from 10ms to 1h, is '" + text + "'");
  }
  *options->mutable_time_budget() = ToProto(budget);
  return absl::OkStatus();
}

}  // namespace

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
    RETURN_IF_ERROR(SetTimeBudget(*budget_, options));
  }
  if (wait_idle_) {
    ASSIGN_OR_RETURN(const absl::Duration wait, output::ParseTime("--wait-idle", *wait_idle_));
    if (wait > kLongestWait) {
      return absl::InvalidArgumentError(
          absl::StrCat("--wait-idle: must be at most 1h, is '", *wait_idle_, "'"));
    }
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

}  // namespace convtune::cli::input
