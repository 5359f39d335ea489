#include "client/cli/app/exit_code.h"

namespace convtune::cli {
namespace {

int RankOf(ExitCode code) {
  switch (code) {
    case ExitCode::kUnreachable:
      return 4;
    case ExitCode::kUsage:
      return 3;
    case ExitCode::kFailed:
      return 2;
    case ExitCode::kMiss:
      return 1;
    case ExitCode::kDone:
      break;
  }
  return 0;
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

}  // namespace convtune::cli
