#include "client/cli/app/exit_code.h"

namespace convtune::cli::app {
namespace {

int RankOf(ExitCode code) {
  constexpr int kRanks[] = {0, 2, 3, 1, 4};
  return kRanks[static_cast<size_t>(code)];
}

}  // namespace

ExitCode Worse(ExitCode a, ExitCode b) { return RankOf(a) >= RankOf(b) ? a : b; }

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ExitCode::kDone;
    case absl::StatusCode::kInvalidArgument:
      return ExitCode::kUsage;
    case absl::StatusCode::kNotFound:
      return ExitCode::kMiss;
    case absl::StatusCode::kUnavailable:
      return ExitCode::kUnreachable;
    default:
      return ExitCode::kFailed;
  }
}

}  // namespace convtune::cli::app
