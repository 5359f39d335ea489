#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/commands/commands.h"
#include "client/cli/output/atomic_file.h"
#include "client/cli/output/progress.h"
#include "client/cli/output/units.h"
#include "client/cli/output/value.h"
#include "db/bundle/bundle_format.h"
#include "db/bundle/bundle_json.h"
#include "db/bundle/bundle_reader.h"
#include "db/bundle/bundle_writer.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::commands {
namespace {

class ExportCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app =
        AddVerb(root, "export", "write what the daemon knows to a bundle", app::Rows::kNo);
    app->add_option("file", file_, "file to write; an earlier export is replaced as a whole")
        ->type_name("FILE")
        ->required();
    app->add_flag("--no-samples", no_samples_, "leave the samples out; medians and counts stay");
    app->add_option("--sign-key", sign_key_, "PEM file with the Ed25519 private key that signs it")
        ->type_name("FILE");
    app->add_flag("--jsonl", jsonl_,
                  "JSON lines for people and diff, as for a file that ends in .jsonl");
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    const bool jsonl = jsonl_ || absl::EndsWith(file_, ".jsonl");
    std::optional<db::bundle::BundleSigningKey> key;
    if (sign_key_) {
      if (jsonl) return absl::InvalidArgumentError("--sign-key: JSON lines cannot be signed");
      ASSIGN_OR_RETURN(key, db::bundle::BundleSigningKey::Read(*sign_key_));
    }
    ASSIGN_OR_RETURN(client::Client* const client, context.Connect());
    ASSIGN_OR_RETURN(const std::unique_ptr<output::AtomicFile> file,
                     output::AtomicFile::CreateOver(
                         file_, "FILE", {db::bundle::kBundleMagic, db::bundle::kBundleJson}));
    v1::ExportBundleRequest request;
    request.set_environment(context.settings().environment);
    request.set_omit_samples(no_samples_);
    int64_t bytes = 0;
    {
      output::ByteProgress progress(context.io(), "exporting", 0);
      RETURN_IF_ERROR(client->ExportBundle(
          request,
          [&](const std::string& piece) {
            bytes += static_cast<int64_t>(piece.size());
            progress.Show(bytes);
            return file->Write(piece);
          },
          context.long_timeout()));
    }
    if (key) RETURN_IF_ERROR(db::bundle::SignBundle(file->temporary_path(), *key));
    ASSIGN_OR_RETURN(const std::unique_ptr<db::bundle::BundleReader> reader,
                     db::bundle::BundleReader::Open(file->temporary_path()));
    if (jsonl) {
      RETURN_IF_ERROR(WriteJson(reader.get()));
    } else {
      // What was written is what will be read.
      RETURN_IF_ERROR(db::bundle::ReadWholeBundle(reader.get(), {}, nullptr));
      RETURN_IF_ERROR(file->Commit());
    }
    const auto count = reader->trailer().tuning_count();
    context.PrintJson({{"file", file_},
                       {"tunings", count},
                       {"bytes", reader->size()},
                       {"signed", key.has_value()}});
    context.Say(absl::StrCat("wrote ", count, " tunings to ", file_,
                             jsonl ? "" : absl::StrCat(", ", output::FormatBytes(reader->size())),
                             key ? ", signed" : ""));
    return app::ExitCode::kDone;
  }

 private:
  absl::Status WriteJson(db::bundle::BundleReader* reader) const {
    ASSIGN_OR_RETURN(const std::unique_ptr<output::AtomicFile> lines,
                     output::AtomicFile::Create(file_, "FILE"));
    RETURN_IF_ERROR(db::bundle::WriteBundleJson(
        reader, {}, [&](const std::string& line) { return lines->Write(line); }));
    return lines->Commit();
  }

  std::string file_;
  bool no_samples_ = false;
  bool jsonl_ = false;
  std::optional<std::string> sign_key_;
};

}  // namespace

std::unique_ptr<app::Command> NewExportCommand() { return std::make_unique<ExportCommand>(); }

}  // namespace convtune::cli::commands
