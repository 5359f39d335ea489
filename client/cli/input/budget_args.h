// BudgetArgs are --budget, --memory-budget and --wait-idle: how much a tuning may
// cost.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "convtune/v1/tuning_service.pb.h"

namespace CLI {
class App;
}

namespace convtune::cli::input {

// Value type, but its address is registered.
class BudgetArgs {
 public:
  // *this must outlive `app`.
  void Register(CLI::App& app);
  // Sets what was given. INVALID_ARGUMENT names the option and its rule.
  absl::Status Fill(v1::TuningOptions* options) const;

 private:
  std::optional<std::string> budget_, memory_budget_, wait_idle_;
};

}  // namespace convtune::cli::input
