// ConstraintArgs are the options that answers must keep to.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "convtune/v1/tuning.pb.h"

namespace CLI {
class App;
}

namespace convtune::cli::input {

// Value type, but its address is registered.
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
