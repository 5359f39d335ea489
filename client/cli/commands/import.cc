#include <CLI/CLI.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/commands/commands.h"
#include "client/cli/output/progress.h"
#include "client/cli/output/units.h"
#include "client/cli/output/value.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::commands {
namespace {

constexpr size_t kPieceBytes = 512 << 10;
// How the daemon's errors begin that are about what it was sent.
constexpr char kDaemonsName[] = "bundle: ";

class ImportCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "import", "give the daemon what a bundle holds", app::Rows::kNo);
    app->add_option("files", files_, "bundles; a row that breaks a rule is named and left out")
        ->type_name("FILE")
        ->required();
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    app::ExitCode code = app::ExitCode::kDone;
    std::vector<output::Json> documents;
    for (const std::string& file : files_) {
      const auto response = Import(context, file);
      if (!response.ok()) {
        code = app::Worse(code, context.Fail(response.status()));
        continue;
      }
      Report(context, file, *response);
      documents.push_back(
          output::JsonMerged(output::JsonObject({{"file", file}}), output::JsonMessage(*response)));
      if (response->refused_count() > 0) code = app::Worse(code, app::ExitCode::kFailed);
    }
    context.PrintJson({{"imports", documents}});
    return code;
  }

 private:
  absl::StatusOr<v1::ImportBundleResponse> Import(app::Context& context,
                                                  const std::string& path) const {
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    std::ifstream file(path, std::ios::binary);
    if (error || !file) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": cannot be read: ", error ? error.message() : "it may not be read"));
    }
    ASSIGN_OR_RETURN(client::Client* const client, context.Connect());
    output::ByteProgress progress(context.io(), "importing", static_cast<int64_t>(size));
    int64_t sent = 0;
    auto response = client->ImportBundle(
        [&]() -> absl::StatusOr<std::string> {
          std::string piece(kPieceBytes, '\0');
          file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
          piece.resize(static_cast<size_t>(file.gcount()));
          if (file.bad()) {
            return absl::InvalidArgumentError(absl::StrCat(path, ": cannot be read to its end"));
          }
          sent += static_cast<int64_t>(piece.size());
          progress.Show(sent);
          return piece;
        },
        context.long_timeout());
    // The daemon knows no name of what it was sent.
    const std::string message(response.status().message());
    if (absl::StartsWith(message, kDaemonsName)) {
      return absl::Status(response.status().code(),
                          absl::StrCat(path, ": ", message.substr(std::strlen(kDaemonsName))));
    }
    return response;
  }

  static void Report(app::Context& context, const std::string& file,
                     const v1::ImportBundleResponse& response) {
    for (const v1::Refusal& refusal : response.refusals()) {
      context.SayError(absl::StrCat(file, ": refused for its ", output::EnumWord(refusal.reason()),
                                    ": ", refusal.count()));
      for (const std::string& example : refusal.examples()) context.Say("  " + example);
    }
    context.Say(absl::StrCat(file, ": took ", response.taken_count(), " of ",
                             response.tuning_count(), " tunings, kept ", response.kept_count(),
                             " that are as good or better here, refused ",
                             response.refused_count()));
    if (response.simulated_count() > 0) {
      context.Say(absl::StrCat(file, ": ", response.simulated_count(), " of ",
                               response.tuning_count(),
                               " tunings are of a simulated GPU, and hold for that alone"));
    }
  }

  std::vector<std::string> files_;
};

}  // namespace

std::unique_ptr<app::Command> NewImportCommand() { return std::make_unique<ImportCommand>(); }

}  // namespace convtune::cli::commands
