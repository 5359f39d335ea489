#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/cli/commands/ban/ban_output.h"
#include "client/cli/commands/commands.h"
#include "client/cli/output/value.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::commands::ban {
namespace {

class BanCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app =
        AddVerb(root, "ban", "keep candidates from being an answer, by a rule; or list, delete",
                app::Rows::kNo);
    args_.Register(*app);
    list_ =
        AddVerbBelow(app, "list", "all bans: those that came with convtune, then the oldest first",
                     app::Rows::kYes);
    list_->add_flag("--errata", as_errata_,
                    "as JSON errata, which cudnn-frontend and PyTorch read");
    app::SayColumns(list_, BanFields({}, TuningCounts::kYes));
    delete_ = AddVerbBelow(app, "delete", "end a ban", app::Rows::kNo);
    delete_->add_option("ban", name_, "number of the ban")->type_name("BAN")->required();
    delete_->add_option("--fleet-ban", fleet_ban_,
                        "number of a fleet ban; only after this node left the fleet");
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    if (list_->parsed()) return List(context);
    if (delete_->parsed()) return Delete(context);
    BanKeeper daemon;
    daemon.create = [&](const v1::Ban& ban) -> absl::StatusOr<v1::CreateBanResponse> {
      ASSIGN_OR_RETURN(client::Client* const client, context.Connect());
      v1::CreateBanRequest request;
      *request.mutable_ban() = ban;
      request.set_dry_run(args_.dry_run());
      return client->Call<v1::CreateBanResponse>(request, context.long_timeout());
    };
    daemon.fail = [&](const absl::Status& status) { return context.Fail(status); };
    return MakeBans(context, args_, daemon);
  }

 private:
  absl::StatusOr<app::ExitCode> List(app::Context& context) const {
    ASSIGN_OR_RETURN(const auto client, context.Connect());
    ASSIGN_OR_RETURN(const auto list, client->Call<v1::ListBansResponse>(v1::ListBansRequest()));
    std::vector<v1::Ban> bans(list.bans().begin(), list.bans().end());
    if (as_errata_) {
      // cudnn-frontend's form lacks their conditions, and PyTorch has them in its code.
      const size_t shipped = std::erase_if(bans, [](const v1::Ban& ban) { return ban.shipped(); });
      if (shipped > 0) context.Say(absl::StrCat(shipped, " that came with convtune are left out"));
      return PrintErrata(context, bans);
    }
    context.PrintJson(list);
    PrintBans(context, bans, TuningCounts::kYes);
    return app::ExitCode::kDone;
  }

  absl::StatusOr<app::ExitCode> Delete(app::Context& context) const {
    v1::DeleteBanRequest request;
    const bool is_number = !name_.empty() && std::all_of(name_.begin(), name_.end(), [](char c) {
      return std::isdigit(static_cast<uint8_t>(c));
    });
    request.set_name(is_number ? "bans/" + name_ : name_);
    request.set_fleet_ban(fleet_ban_);
    ASSIGN_OR_RETURN(const auto client, context.Connect());
    ASSIGN_OR_RETURN(const auto deleted,
                     client->Call<v1::DeleteBanResponse>(request, context.long_timeout()));
    context.PrintJson({{"deleted", request.name()}});
    context.Say("deleted " + request.name());
    return app::ExitCode::kDone;
  }

  BanArgs args_;
  CLI::App* list_ = nullptr;
  CLI::App* delete_ = nullptr;
  std::string name_;
  int64_t fleet_ban_ = 0;
  bool as_errata_ = false;
};

}  // namespace

std::unique_ptr<app::Command> NewBanCommand() { return std::make_unique<BanCommand>(); }

}  // namespace convtune::cli::commands::ban
