#include <CLI/CLI.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/cli/commands/commands.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/units.h"
#include "client/cli/output/value.h"
#include "proto/base/status_macros.h"
#include "proto/model/tuning/ban.h"

namespace convtune::cli::commands {
namespace {

class PinCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "pin", "make one candidate the answer, whatever was measured",
                            app::Rows::kNo);
    problem_.RegisterOne(*app);
    app->add_option("candidate", candidate_,
                    "candidate as `convtune explain` shows it; of a pattern such as eng47 the best "
                    "that fits")
        ->type_name("CANDIDATE")
        ->required();
    app->add_option("--reason", reason_, "the reason, for those who find it later")
        ->type_name("TEXT")
        ->required();
    app->add_option("--ttl", ttl_, "how long the pin holds, such as 72h; without it until unpin")
        ->type_name("TIME");
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    ASSIGN_OR_RETURN(const auto problem, problem_.ReadOne());
    if (const auto candidate = CandidatePattern::Parse(candidate_); !candidate.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("CANDIDATE: ", std::string(candidate.status().message())));
    }
    if (reason_.empty() || reason_.size() > 500) {
      return absl::InvalidArgumentError("--reason: must have 1 to 500 characters");
    }
    v1::PinRequest request;
    if (ttl_) {
      ASSIGN_OR_RETURN(const auto ttl, output::ParseTime("--ttl", *ttl_));
      if (ttl < absl::Seconds(1)) {
        return absl::InvalidArgumentError("--ttl: must be at least 1s, is '" + *ttl_ + "'");
      }
      request.mutable_ttl()->set_seconds(absl::ToInt64Seconds(ttl));
    }
    request.set_environment(context.settings().environment);
    request.mutable_problem()->set_text(problem.ToText());
    request.set_candidate(candidate_);
    request.set_reason(reason_);
    ASSIGN_OR_RETURN(const auto client, context.Connect());
    ASSIGN_OR_RETURN(const auto pin, client->Call<v1::PinRecord>(request));
    context.PrintJson({{"pin", pin}});
    const std::string until =
        pin.has_expire_time() ? output::FormatTimestamp(pin.expire_time()) : "unpinned";
    context.Say(
        absl::StrCat("pinned ", pin.candidate(), " in ", pin.environment(), " until ", until));
    return app::ExitCode::kDone;
  }

 private:
  input::ProblemArgs problem_;
  std::string candidate_, reason_;
  std::optional<std::string> ttl_;
};

}  // namespace

std::unique_ptr<app::Command> NewPinCommand() { return std::make_unique<PinCommand>(); }

}  // namespace convtune::cli::commands
