// The verb that keeps candidates from being an answer on every node: ban.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/commands/ban/ban_output.h"
#include "client/cli/output/io.h"
#include "db/fleet/bans.h"
#include "proto/base/status_macros.h"
#include "proto/convert/ban_proto.h"
#include "server/fleet/commands.h"
#include "server/lookup/answer.h"

namespace convtune::fleet {
namespace {

constexpr size_t kMostBanChanges = 1000;

class FleetBanCommand final : public FleetCommand {
 public:
  void Register(CLI::App& root) override {
    app_ = AddVerb(root, "ban", "keep candidates from being an answer on every node; list, delete",
                   [this] { return Make(); });
    args_.Register(*app_);
    CLI::App* const list =
        AddVerb(*app_, "list", "the fleet's bans, oldest first", [this] { return List(); });
    list->add_flag("--errata", as_errata_, "as JSON errata, which cudnn-frontend and PyTorch read");
    CLI::App* const end =
        AddVerb(*app_, "delete", "end a ban of the fleet", [this] { return Delete(); });
    end->add_option("ban", number_, "its number")->type_name("BAN")->required();
    AddAuthor(end);
  }

 private:
  // List and delete have their own options: those before them would be ignored.
  absl::Status CheckNothingBefore() const {
    for (const CLI::Option* const option : app_->get_options()) {
      const char* const variable =
          option->get_envname().empty() ? nullptr : std::getenv(option->get_envname().c_str());
      const bool is_of_variable =
          variable != nullptr && option->results() == std::vector<std::string>{variable};
      if (option->count() == 0 || is_of_variable) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(option->get_name(), ": does not belong before list or delete"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<cli::app::ExitCode> Make() {
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    cli::output::Io io = cli::output::TerminalIo();
    cli::app::Context context(io, {}, json_ ? cli::app::Format::kJson : cli::app::Format::kTable,
                              *app_);
    cli::commands::ban::BanKeeper keeper;
    keeper.create = [&](const v1::Ban& ban) { return Create(*postgres, ban); };
    keeper.fail = [](const absl::Status& status) { return SayResult(status); };
    return cli::commands::ban::MakeBans(context, args_, keeper);
  }

  absl::StatusOr<v1::CreateBanResponse> Create(db::postgres::Connection& postgres,
                                               const v1::Ban& proto) const {
    std::vector<Violation> violations;
    Ban ban = BanFromProto(proto, "ban", &violations);
    if (!violations.empty()) return absl::InvalidArgumentError(ToString(violations));
    ban.create_time = absl::Now();
    RETURN_IF_ERROR(ban.CheckExpiry(ban.create_time));
    if (args_.dry_run()) RETURN_IF_ERROR(PoolEverything(postgres));
    ASSIGN_OR_RETURN(const std::vector<db::fleet::FleetBan> known,
                     db::fleet::ListFleetBans(postgres));
    if (!args_.dry_run()) {
      std::optional<absl::Duration> left;
      if (ban.expire_time.has_value()) left = *ban.expire_time - ban.create_time;
      ASSIGN_OR_RETURN(ban.fleet_ban, db::fleet::PutFleetBan(postgres, ban, left));
    }
    const Bans before = db::fleet::ReadableBans(known);
    const Bans after = before.With(ban);
    BanEffects effects;
    const absl::Status read =
        db::fleet::ForEachUnderBan(postgres, ban, [&](const Tuning& tuning, const Pin* pin) {
          lookup::AddBanEffect(tuning, pin, before, after, ban.create_time, kMostBanChanges,
                               &effects);
        });
    if (args_.dry_run()) RETURN_IF_ERROR(read);
    // A ban that was made holds, whether or not its effects can be read.
    if (!read.ok())
      std::cerr << "warning: what it changes cannot be read: " << read.message() << '\n';
    return ToProto(ban, effects);
  }

  absl::StatusOr<cli::app::ExitCode> List() const {
    RETURN_IF_ERROR(CheckNothingBefore());
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    ASSIGN_OR_RETURN(const std::vector<db::fleet::FleetBan> listed,
                     db::fleet::ListFleetBans(*postgres));
    cli::output::Io io = cli::output::TerminalIo();
    cli::app::Context context(io, {}, json_ ? cli::app::Format::kJson : cli::app::Format::kTable,
                              *app_);
    std::vector<v1::Ban> bans;
    std::vector<cli::output::Json> documents;
    cli::app::ExitCode code = cli::app::ExitCode::kDone;
    for (const db::fleet::FleetBan& one : listed) {
      if (!one.error.empty()) {
        context.SayError(absl::StrCat(one.ban.Name(), ": ", one.error));
        code = cli::app::ExitCode::kFailed;
        continue;
      }
      v1::Ban ban = ToProto(one.ban);
      documents.push_back(cli::output::JsonMerged(cli::output::JsonMessage(ban),
                                                  cli::output::JsonObject({{"login", one.login}})));
      if (one.login != ban.author())
        absl::StrAppend(ban.mutable_author(), " (login ", one.login, ")");
      bans.push_back(std::move(ban));
    }
    if (as_errata_) return cli::app::Worse(code, cli::commands::ban::PrintErrata(context, bans));
    context.PrintJson({{"bans", documents}});
    cli::commands::ban::PrintBans(context, bans, cli::commands::ban::TuningCounts::kNo);
    return code;
  }

  absl::Status Delete() {
    RETURN_IF_ERROR(CheckNothingBefore());
    RETURN_IF_ERROR(CheckAuthor());
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    RETURN_IF_ERROR(db::fleet::EndFleetBan(*postgres, number_, author_));
    if (json_) Print(cli::output::JsonObject({{"deleted", number_}}), "");
    std::cerr << "deleted fleet ban " << number_ << '\n';
    return absl::OkStatus();
  }

  cli::commands::ban::BanArgs args_;
  CLI::App* app_ = nullptr;
  int64_t number_ = 0;
  bool as_errata_ = false;
};

}  // namespace

std::unique_ptr<FleetCommand> NewFleetBanCommand() { return std::make_unique<FleetBanCommand>(); }

}  // namespace convtune::fleet
