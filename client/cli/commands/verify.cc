#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <ostream>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/cli/commands/commands.h"
#include "client/cli/output/progress.h"
#include "client/cli/output/units.h"
#include "client/cli/output/value.h"
#include "db/bundle/bundle_codec.h"
#include "db/bundle/bundle_json.h"
#include "db/bundle/bundle_merge.h"
#include "db/bundle/bundle_reader.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::commands {
namespace {

class VerifyCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app =
        AddVerb(root, "verify", "check a bundle, byte by byte and row by row", app::Rows::kNo);
    app->add_option("files", files_, "bundles")->type_name("FILE")->required();
    app->add_option("--public-key", public_keys_,
                    "PEM file with an Ed25519 public key, one of which must have signed")
        ->type_name("FILE")
        ->allow_extra_args(false);
    app->add_flag("--jsonl", jsonl_, "print its tunings as JSON lines");
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    std::vector<std::string> trusted;
    for (const std::string& path : public_keys_) {
      ASSIGN_OR_RETURN(auto key, db::bundle::ReadBundlePublicKey(path));
      trusted.push_back(std::move(key));
    }
    app::ExitCode code = app::ExitCode::kDone;
    std::vector<output::Json> documents;
    for (const std::string& file : files_) {
      const auto document =
          jsonl_ ? PrintLines(context, file, trusted) : Verify(context, file, trusted, &code);
      if (document.ok()) {
        documents.push_back(*document);
      } else {
        code = app::Worse(code, context.Fail(document.status()));
      }
    }
    if (!jsonl_) context.PrintJson({{"bundles", documents}});
    return code;
  }

 private:
  static absl::StatusOr<output::Json> PrintLines(app::Context& context, const std::string& file,
                                                 const std::vector<std::string>& trusted) {
    ASSIGN_OR_RETURN(const std::unique_ptr<db::bundle::BundleReader> reader,
                     db::bundle::BundleReader::Open(file));
    RETURN_IF_ERROR(
        db::bundle::WriteBundleJson(reader.get(), trusted, [&](const std::string& line) {
          context.io().out << line;
          return absl::OkStatus();
        }));
    return output::Json();
  }

  static absl::StatusOr<output::Json> Verify(app::Context& context, const std::string& file,
                                             const std::vector<std::string>& trusted,
                                             app::ExitCode* code) {
    ASSIGN_OR_RETURN(const std::unique_ptr<db::bundle::BundleReader> reader,
                     db::bundle::BundleReader::Open(file));
    db::bundle::RefusalCounts refused;
    const absl::Time now = SystemClock().Now();
    {
      output::ByteProgress progress(context.io(), "verifying", reader->size());
      RETURN_IF_ERROR(db::bundle::ReadWholeBundle(
          reader.get(), trusted, [&](const db::bundle::BundleEntry& entry) {
            progress.Show(entry.offset);
            const auto tuning = db::bundle::FromBundleTuning(*entry.row, *entry.environment, now);
            if (!tuning.ok()) refused.Add(entry, tuning.status());
          }));
    }
    for (const v1::Refusal& refusal : refused.refusals()) {
      for (const std::string& example : refusal.examples()) {
        context.SayError(absl::StrCat(file, ": ", example));
      }
    }
    const v1::BundleTrailer& trailer = reader->trailer();
    const std::string signer = absl::BytesToHexString(trailer.public_key());
    context.Say(absl::StrCat(
        file, ": ", trailer.tuning_count(), " tunings, ", trailer.environment_count(),
        " environments and places, ", output::FormatBytes(reader->size()), ", ",
        signer.empty() ? "not signed" : "signed by " + signer,
        refused.rows() > 0 ? absl::StrCat(", ", refused.rows(), " tunings break a rule")
                           : ", sound"));
    if (refused.rows() > 0) *code = app::Worse(*code, app::ExitCode::kFailed);
    return output::JsonObject({{"file", file},
                               {"tunings", trailer.tuning_count()},
                               {"environments", trailer.environment_count()},
                               {"bytes", reader->size()},
                               {"sha256", absl::BytesToHexString(trailer.sha256())},
                               {"signer", signer},
                               {"refusals", output::JsonMessages(refused.refusals())}});
  }

  std::vector<std::string> files_;
  std::vector<std::string> public_keys_;
  bool jsonl_ = false;
};

}  // namespace

std::unique_ptr<app::Command> NewVerifyCommand() { return std::make_unique<VerifyCommand>(); }

}  // namespace convtune::cli::commands
