#include <CLI/CLI.hpp>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/cli/commands/commands.h"
#include "client/cli/output/value.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::commands {
namespace {

class VersionCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    AddVerb(root, "version", "versions of this program and of the daemon", app::Rows::kNo);
  }

  // A daemon that is not there is no failure: this program's version is known.
  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    ASSIGN_OR_RETURN(const auto client, context.Connect());
    const auto server = client->Call<v1::ServerInfo>(v1::GetServerInfoRequest());
    std::ostream& out = context.io().out;
    context.PrintJson({{"client", CONVTUNE_VERSION},
                       {"server", server.ok() ? *server : output::Value(output::Json{"null"})}});
    if (context.format() != app::Format::kJson) {
      out << "convtune " CONVTUNE_VERSION "\n";
      if (server.ok()) {
        out << "convtuned " << server->version() << " (pid " << server->pid()
            << ", database schema " << server->schema_version() << ")\n";
      }
    }
    if (!server.ok()) {
      context.Say(absl::StrCat("no answer from the daemon at ",
                               context.settings().client.address.ToText(), ": ",
                               std::string(server.status().message())));
    }
    return app::ExitCode::kDone;
  }
};

}  // namespace

std::unique_ptr<app::Command> NewVersionCommand() { return std::make_unique<VersionCommand>(); }

}  // namespace convtune::cli::commands
