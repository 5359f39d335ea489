#include "client/cli/app/context.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/app/address_check.h"
#include "client/cli/output/fields.h"
#include "client/cpp/client.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::app {
namespace {

int RankOf(ExitCode code) {
  constexpr int kRanks[] = {0, 3, 4, 2, 5, 1};  // by ExitCode; Worse() takes the larger
  return kRanks[static_cast<size_t>(code)];
}

// What to do where nobody answers at the address of `options`.
std::string AdviceFor(const client::Client::Options& options) {
  std::vector<std::string> lines;
  for (const Finding& finding : ExamineAddress(options.address, options.tls)) {
    if (finding.severity != Severity::kProblem) continue;
    lines.push_back(absl::StrCat(finding.what, ": ", finding.advice, "."));
  }
  if (lines.empty()) return absl::StrCat("If none runs there, ", HowToStart(), ".");
  return absl::StrJoin(lines, "\n");
}

}  // namespace

ExitCode Worse(ExitCode a, ExitCode b) { return RankOf(a) >= RankOf(b) ? a : b; }

ExitCode ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return ExitCode::kDone;
  if (absl::IsInvalidArgument(status)) return ExitCode::kUsage;
  if (absl::IsNotFound(status)) return ExitCode::kMiss;
  return absl::IsUnavailable(status) ? ExitCode::kUnreachable : ExitCode::kFailed;
}

absl::StatusOr<client::Client*> Context::Connect() {
  if (client_ == nullptr) {
    ASSIGN_OR_RETURN(client_, client::Client::Create(settings_.client));
  }
  return client_.get();
}

absl::Duration Context::long_timeout() const {
  return settings_.timeout.value_or(absl::InfiniteDuration());
}

void Context::PrintJson(const output::Fields& document) {
  if (format_ == Format::kJson) io_.out << output::JsonRow(document).text << "\n";
}

void Context::PrintJson(const google::protobuf::Message& document) {
  if (format_ == Format::kJson) io_.out << output::JsonMessage(document).text << "\n";
}

ExitCode Context::Fail(const absl::Status& status) {
  const std::string message(status.message());
  const std::string address = settings_.client.address.ToText();
  const std::vector<Violation> violations = client::ViolationsOf(status);
  if (absl::IsUnavailable(status) && client::IsFromDaemon(status)) {
    SayError("the daemon at ", address, " cannot do this now: ", message);
  } else if (absl::IsUnavailable(status)) {
    SayError("no answer from the daemon at ", address, ": ", message);
    Say(AdviceFor(settings_.client));
  } else if (absl::IsDeadlineExceeded(status)) {
    SayError("the daemon at ", address, " needed longer than ",
             absl::FormatDuration(settings_.client.timeout), "; allow more with --timeout");
  } else if (absl::IsUnimplemented(status)) {
    SayError("the daemon at ", address,
             " does not know this call: it is older than this program (" CONVTUNE_VERSION
             "), see `convtune version`");
  } else if (violations.empty()) {
    SayError(message);
  } else {
    for (const Violation& violation : violations) SayError(violation.field, ": ", violation.rule);
  }
  return ExitCodeOf(status);
}

}  // namespace convtune::cli::app
