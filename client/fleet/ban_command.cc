// The verb that keeps candidates from being an answer on every node: ban.
#include <CLI/CLI.hpp>
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/cli/commands/ban/bans.h"
#include "client/fleet/commands.h"
#include "db/fleet/bans.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/convert/ban_proto.h"
#include "proto/model/tuning/ranking.h"

namespace convtune::fleet {
namespace {

constexpr int kMostBanChanges = 1000;

class FleetBanCommand final : public FleetCommand {
 public:
  using FleetCommand::FleetCommand;
  void Register(CLI::App& root) override {
    CLI::App* const app =
        AddVerb(root, "ban", "keep candidates from being an answer on every node; list, delete");
    args_.Register(*app);
    made_.RegisterSign(*app);
    wait_.Register(*app);
    list_ = AddVerbBelow(app, "list", "the fleet's bans, oldest first", Columns({}, {}));
    list_->add_flag("--errata", as_errata_,
                    "as JSON errata, which cudnn-frontend and PyTorch read");
    list_->add_flag("--nodes", with_names_, "also who has not heeded it");
    delete_ = AddVerbBelow(app, "delete", "end a ban of the fleet");
    delete_->add_option("ban", number_, "its number")->type_name("BAN")->required();
    end_.RegisterAuthor(*delete_);
  }

  absl::StatusOr<cli::app::ExitCode> Run(cli::app::Context& context) override {
    if (list_->parsed() || delete_->parsed()) RETURN_IF_ERROR(CheckNothingBefore());
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    if (list_->parsed()) return List(context, *postgres);
    if (delete_->parsed()) {
      RETURN_IF_ERROR(db::fleet::EndFleetBan(*postgres, number_, end_.author));
      context.PrintJson({{"deleted", number_}});
      context.Say("deleted fleet ban ", number_);
      return cli::app::ExitCode::kDone;
    }
    if (args_.dry_run() && wait_.most.has_value()) {
      return absl::InvalidArgumentError("--wait: cannot be given together with --dry-run");
    }
    std::vector<int64_t> made;
    const auto create = [&](const v1::Ban& ban) {
      auto created = Create(context, *postgres, ban);
      if (created.ok()) made.push_back(created->ban().fleet_ban());
      return created;
    };
    const cli::app::ExitCode code = cli::commands::ban::MakeBans(
        context, args_, create,
        [&](const absl::Status& status) { return FailFleet(context, status); });
    if (made.empty()) return code;
    // Of those that were made, the one that has come least far.
    const auto read = [&]() -> absl::StatusOr<db::fleet::Heeding> {
      ASSIGN_OR_RETURN(auto all, db::fleet::ReadBanHeeding(*postgres));
      RETURN_IF_ERROR(db::fleet::CheckDecisionsHold(*postgres, "ban", made));
      return all[*std::max_element(made.begin(), made.end(), [&all](int64_t a, int64_t b) {
        return all[a].missing.size() < all[b].missing.size();
      })];
    };
    ASSIGN_OR_RETURN(const cli::app::ExitCode waited, wait_.Wait(context, read));
    return cli::app::Worse(code, waited);
  }

 private:
  // List and delete have their own options: those before them would be ignored.
  absl::Status CheckNothingBefore() {
    for (const CLI::Option* const option : verb().get_options()) {
      if (option->count() == 0) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(option->get_name(), ": does not belong before list or delete"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<v1::CreateBanResponse> Create(cli::app::Context& context,
                                               db::postgres::Connection& postgres,
                                               const v1::Ban& proto) const {
    std::vector<Violation> violations;
    Ban ban = BanFromProto(proto, "ban", &violations);
    if (!violations.empty()) return absl::InvalidArgumentError(ToString(violations));
    ban.create_time = SystemClock().Now();
    RETURN_IF_ERROR(ban.CheckExpiry(ban.create_time));
    if (args_.dry_run()) RETURN_IF_ERROR(PoolEverything(context, postgres));
    ASSIGN_OR_RETURN(const std::vector<db::fleet::FleetBan> known,
                     db::fleet::ListFleetBans(postgres));
    if (!args_.dry_run()) {
      ASSIGN_OR_RETURN(const db::fleet::FleetDecision made, made_.Read());
      std::optional<absl::Duration> left;
      if (ban.expire_time.has_value()) left = *ban.expire_time - ban.create_time;
      ASSIGN_OR_RETURN(ban.fleet_ban, db::fleet::PutFleetBan(postgres, ban, left, made.key));
    }
    const Bans before = db::fleet::HeededBans(known);
    const Bans after = before.With(ban);
    v1::CreateBanResponse created;
    const absl::Status read =
        db::fleet::ForEachUnderBan(postgres, ban, [&](const Tuning& tuning, const Pin* pin) {
          AddBanEffect(tuning, pin, before, after, ban.create_time, kMostBanChanges, &created);
        });
    if (args_.dry_run()) RETURN_IF_ERROR(read);
    // A ban that was made holds, whether or not its effects can be read.
    if (!read.ok()) {
      context.Say("warning: what it changes cannot be read: ", std::string(read.message()));
    }
    *created.mutable_ban() = ToProto(ban);
    return created;
  }

  cli::output::Fields Columns(const v1::Ban& ban, const db::fleet::Heeding& heeding) const {
    auto fields = cli::commands::ban::BanFields(ban, cli::commands::ban::TuningCounts::kNo);
    AddHeeding(heeding, with_names_, &fields);
    return fields;
  }

  absl::StatusOr<cli::app::ExitCode> List(cli::app::Context& context,
                                          db::postgres::Connection& postgres) const {
    ASSIGN_OR_RETURN(const std::vector<db::fleet::FleetBan> listed,
                     db::fleet::ListFleetBans(postgres));
    ASSIGN_OR_RETURN(auto heeding, db::fleet::ReadBanHeeding(postgres));
    std::vector<v1::Ban> bans;
    std::vector<cli::output::Json> documents;
    cli::app::ExitCode code = cli::app::ExitCode::kDone;
    for (const db::fleet::FleetBan& one : listed) {
      if (!one.error.empty()) {
        context.SayError(one.ban.Name(), ": ", one.error);
        code = cli::app::ExitCode::kFailed;
        continue;
      }
      v1::Ban ban = ToProto(one.ban);
      cli::output::Fields fields = {{"login", "", one.login}};
      AddHeeding(heeding[one.ban.fleet_ban], with_names_, &fields);
      documents.push_back(
          cli::output::JsonMerged(cli::output::JsonMessage(ban), cli::output::JsonRow(fields)));
      if (one.login != ban.author()) {
        absl::StrAppend(ban.mutable_author(), " (login ", one.login, ")");
      }
      bans.push_back(std::move(ban));
    }
    if (as_errata_) return cli::app::Worse(code, cli::commands::ban::PrintErrata(context, bans));
    context.PrintJson({{"bans", documents}});
    context.PrintRows(bans,
                      [&](const v1::Ban& ban) { return Columns(ban, heeding[ban.fleet_ban()]); });
    if (bans.empty() && context.format() != cli::app::Format::kJson) {
      context.Say("nothing is banned");
    }
    return code;
  }

  cli::commands::ban::BanArgs args_;
  CLI::App* list_ = nullptr;
  CLI::App* delete_ = nullptr;
  DecisionArgs made_;  // its key alone
  DecisionArgs end_;
  WaitArgs wait_;
  int64_t number_ = 0;
  bool as_errata_ = false;
  bool with_names_ = false;
};

}  // namespace

std::unique_ptr<cli::app::Command> NewFleetBanCommand(const PostgresFlags& flags) {
  return std::make_unique<FleetBanCommand>(flags);
}

}  // namespace convtune::fleet
