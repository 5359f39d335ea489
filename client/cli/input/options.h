// Options that several verbs have: who decides, how much a tuning may cost, and what answers must
// keep to.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "convtune/v1/tuning.pb.h"
#include "convtune/v1/tuning_service.pb.h"

namespace CLI {
class App;
}

namespace convtune::cli::input {

// `given`, or the user's name where that is empty.
std::string AuthorOf(const std::string& given);

// --budget, --memory-budget and --wait-idle. Value type, but its address is registered.
class BudgetArgs {
 public:
  // *this must outlive `app`.
  void Register(CLI::App& app);
  // Sets what was given. INVALID_ARGUMENT names the option and its rule.
  absl::Status Fill(v1::TuningOptions* options) const;

 private:
  std::optional<std::string> budget_, memory_budget_, wait_idle_;
};

// What answers must keep to. Value type, but its address is registered.
class ConstraintArgs {
 public:
  // *this must outlive `app`.
  void Register(CLI::App& app);
  // INVALID_ARGUMENT names the option and the rule.
  absl::StatusOr<v1::Constraints> ToProto() const;

 private:
  std::optional<std::string> max_workspace_;
  bool deterministic_ = false;
  bool no_tf32_ = false;
  bool no_down_convert_ = false;
  bool no_winograd_ = false;
  bool no_fft_ = false;
  bool no_reduced_precision_ = false;
  std::string api_ = "any";
  std::string launch_ = "eager";
  std::optional<double> max_error_;
  std::string cache_;
};

}  // namespace convtune::cli::input
