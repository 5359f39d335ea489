#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "client/cli/commands/commands.h"
#include "client/cli/output/json.h"
#include "client/cli/output/units.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::commands {
namespace {

class DbCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* verb = AddVerbGroup(root, "db", "care of the database, through the daemon");
    check_ = AddVerbBelow(verb, "check", "structure, foreign keys and every row's checksum",
                          app::Rows::kNo);
    backup_ = AddVerbBelow(verb, "backup", "write a copy into convtuned's --backup-dir, read back",
                           app::Rows::kNo);
    backup_->add_option("file", file_, "name of a new file; without it, convtune-TIME.db")
        ->type_name("NAME");
    AddVerbBelow(verb, "compact", "thin old samples and give free space back", app::Rows::kNo);
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    ASSIGN_OR_RETURN(const auto client, context.Connect());
    if (check_->parsed()) return Check(context, *client);
    return backup_->parsed() ? Backup(context, *client) : Compact(context, *client);
  }

 private:
  static void PrintJson(app::Context& context, const google::protobuf::Message& message) {
    context.PrintJson(message);
  }

  static absl::StatusOr<app::ExitCode> Check(app::Context& context, client::Client& client) {
    ASSIGN_OR_RETURN(const auto response, client.Call<v1::CheckDatabaseResponse>(
                                              v1::CheckDatabaseRequest(), context.long_timeout()));
    PrintJson(context, response);
    for (const std::string& finding : response.findings()) context.SayError(finding);
    context.Say(absl::StrCat(
        "compared ", response.rows_checked(), " rows: ",
        response.ok() ? "the database is sound" : "the database is damaged; restore a backup"));
    return response.ok() ? app::ExitCode::kDone : app::ExitCode::kFailed;
  }

  absl::StatusOr<app::ExitCode> Backup(app::Context& context, client::Client& client) const {
    v1::BackupDatabaseRequest request;
    request.set_path(file_);
    ASSIGN_OR_RETURN(const auto response,
                     client.Call<v1::BackupDatabaseResponse>(request, context.long_timeout()));
    PrintJson(context, response);
    context.Say(absl::StrCat("wrote ", output::FormatBytes(response.bytes()), " to ",
                             response.path().empty() ? file_ : response.path(),
                             ", in the daemon's file system"));
    return app::ExitCode::kDone;
  }

  static absl::StatusOr<app::ExitCode> Compact(app::Context& context, client::Client& client) {
    ASSIGN_OR_RETURN(const auto response,
                     client.Call<v1::CompactDatabaseResponse>(v1::CompactDatabaseRequest(),
                                                              context.long_timeout()));
    PrintJson(context, response);
    context.Say(absl::StrCat("thinned ", response.thinned(), " measurements; ",
                             output::FormatBytes(response.bytes_before()), " before, ",
                             output::FormatBytes(response.bytes_after()), " now"));
    return app::ExitCode::kDone;
  }

  CLI::App* check_ = nullptr;
  CLI::App* backup_ = nullptr;
  std::string file_;
};

}  // namespace

std::unique_ptr<app::Command> NewDbCommand() { return std::make_unique<DbCommand>(); }

}  // namespace convtune::cli::commands
