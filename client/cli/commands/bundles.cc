// The verbs export, import, merge and verify.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <system_error>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/commands/commands.h"
#include "client/cli/output/atomic_file.h"
#include "client/cli/output/fields.h"
#include "client/cli/output/progress.h"
#include "client/cli/output/units.h"
#include "db/bundle/bundle_codec.h"
#include "db/bundle/bundle_merge.h"
#include "db/bundle/bundle_reader.h"
#include "db/bundle/bundle_writer.h"
#include "db/bundle/oci_layout.h"
#include "proto/base/clock.h"
#include "proto/base/errors.h"
#include "proto/base/replace_file.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::commands {
namespace {

class ExportCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "export", "write what the daemon knows to a bundle");
    app->add_option("file", file_, "file to write; an earlier export is replaced as a whole")
        ->type_name("FILE")
        ->required();
    app->add_flag("--no-samples", no_samples_, "leave the samples out; medians and counts stay");
    app->add_option("--sign-key", sign_key_, "PEM file with the Ed25519 private key that signs it")
        ->type_name("FILE");
    app->add_flag("--jsonl", jsonl_,
                  "JSON lines for people and diff, as for a file that ends in .jsonl");
    app->add_flag("--oci", oci_, "make FILE a folder that is an OCI image layout, for registries")
        ->excludes("--jsonl");
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    const bool jsonl = jsonl_ || (!oci_ && absl::EndsWith(file_, ".jsonl"));
    std::error_code error;
    if (oci_ && std::filesystem::exists(file_, error)) {
      return InvalidArgument("FILE: with --oci ", file_, " must not exist");
    }
    std::optional<db::bundle::BundleSigningKey> key;
    if (sign_key_) {
      if (jsonl) return absl::InvalidArgumentError("--sign-key: JSON lines cannot be signed");
      ASSIGN_OR_RETURN(key, db::bundle::BundleSigningKey::Read(*sign_key_));
    }
    ASSIGN_OR_RETURN(client::Client* const client, context.Connect());
    ASSIGN_OR_RETURN(const std::unique_ptr<output::AtomicFile> file,
                     output::AtomicFile::CreateOver(
                         file_, "FILE", {db::bundle::kBundleMagic, db::bundle::kBundleJson}));
    auto request = context.NewRequest<v1::ExportBundleRequest>();
    request.set_omit_samples(no_samples_);
    int64_t bytes = 0;
    {
      output::ProgressBar bar(context.io());
      RETURN_IF_ERROR(client->ExportBundle(
          request,
          [&](const std::string& piece) {
            bytes += static_cast<int64_t>(piece.size());
            bar.ShowBytes("exporting", bytes);
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
      RETURN_IF_ERROR(oci_ ? db::bundle::WriteOciLayout(file->temporary_path(), file_)
                           : file->Commit());
    }
    const auto count = reader->trailer().tuning_count();
    context.PrintJson({{"file", file_},
                       {"tunings", count},
                       {"bytes", reader->size()},
                       {"signed", key.has_value()}});
    context.Say("wrote ", count, " tunings to ", file_,
                jsonl ? "" : absl::StrCat(", ", output::FormatBytes(reader->size())),
                key ? ", signed" : "");
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
  bool oci_ = false;
  std::optional<std::string> sign_key_;
};

constexpr size_t kPieceBytes = 512 << 10;

class ImportCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "import", "give the daemon what a bundle holds");
    app->add_option(
           "files", files_,
           "bundles, or folders with one as an OCI image layout; a row that breaks a rule is "
           "named and left out")
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
        context.Say(file, " was not imported");
        continue;
      }
      Report(context, file, *response);
      documents.push_back(
          output::JsonMerged(output::JsonRow({{"file", file}}), output::JsonMessage(*response)));
      if (response->refused_count() > 0) code = app::Worse(code, app::ExitCode::kFailed);
    }
    context.PrintJson({{"imports", documents}});
    return code;
  }

 private:
  absl::StatusOr<v1::ImportBundleResponse> Import(app::Context& context,
                                                  const std::string& path) const {
    std::function<absl::StatusOr<std::string>()> next;
    int64_t size = 0;
    std::unique_ptr<db::bundle::OciBundle> image;
    std::ifstream file;
    if (db::bundle::IsOciLayout(path)) {
      ASSIGN_OR_RETURN(image, db::bundle::OciBundle::Open(path));
      size = image->size();
      next = [&image] { return image->Read(kPieceBytes); };
    } else {
      std::error_code error;
      size = static_cast<int64_t>(std::filesystem::file_size(path, error));
      file.open(path, std::ios::binary);
      if (error || !file) {
        return InvalidArgument(
            path, ": cannot be read: ", error ? error.message() : "it may not be read");
      }
      next = [&]() -> absl::StatusOr<std::string> {
        std::string piece(kPieceBytes, '\0');
        file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
        piece.resize(static_cast<size_t>(file.gcount()));
        if (file.bad()) {
          return InvalidArgument(path, ": cannot be read to its end");
        }
        return piece;
      };
    }
    ASSIGN_OR_RETURN(client::Client* const client, context.Connect());
    output::ProgressBar bar(context.io());
    int64_t sent = 0;
    return client->ImportBundle(
        [&]() -> absl::StatusOr<std::string> {
          ASSIGN_OR_RETURN(std::string piece, next());
          sent += static_cast<int64_t>(piece.size());
          bar.ShowBytes("importing", sent, size);
          return piece;
        },
        context.long_timeout());
  }

  static void Report(app::Context& context, const std::string& file,
                     const v1::ImportBundleResponse& response) {
    for (const v1::Refusal& refusal : response.refusals()) {
      context.SayError(file, ": refused for its ", output::EnumWord(refusal.reason()), ": ",
                       refusal.count());
      for (const std::string& example : refusal.examples()) context.Say("  " + example);
    }
    context.Say(file, ": took ", response.taken_count(), " of ", response.tuning_count(),
                " tunings, kept ", response.kept_count(),
                " that are as good or better here, refused ", response.refused_count());
    if (response.simulated_count() > 0) {
      context.Say(file, ": ", response.simulated_count(), " of ", response.tuning_count(),
                  " tunings are of a simulated GPU, and hold for that alone");
    }
  }

  std::vector<std::string> files_;
};

class MergeCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app =
        AddVerb(root, "merge", "make one bundle of several, the better tuning of each problem");
    app->add_option("out", out_, "file to write; an earlier bundle is replaced as a whole")
        ->type_name("OUT")
        ->required();
    app->add_option("in", inputs_, "bundles to read")->type_name("IN")->required();
    app->add_flag("--no-samples", no_samples_, "leave the samples out; medians and counts stay");
    app->add_flag("--skip-refused", skip_refused_,
                  "leave out rows that break a rule, and take the others");
    app->add_option("--sign-key", sign_key_, "PEM file with the Ed25519 private key that signs it")
        ->type_name("FILE");
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    std::optional<db::bundle::BundleSigningKey> key;
    if (sign_key_) {
      ASSIGN_OR_RETURN(key, db::bundle::BundleSigningKey::Read(*sign_key_));
    }
    ASSIGN_OR_RETURN(const std::unique_ptr<output::AtomicFile> file,
                     output::AtomicFile::CreateOver(out_, "OUT", {db::bundle::kBundleMagic}));
    db::bundle::BundleWriter writer([&](std::string_view bytes) { return file->Write(bytes); },
                                    !no_samples_);
    int64_t total = 0;
    for (const std::string& input : inputs_) total += BytesOf(input);
    output::ProgressBar bar(context.io());
    db::bundle::BundleMergeOptions options;
    options.now = SystemClock().Now();
    options.skip_refused = skip_refused_;
    options.refused = [&](const std::string& text) { context.SayError(text); };
    options.progress = [&](int64_t bytes) { bar.ShowBytes("merging", bytes, total); };
    ASSIGN_OR_RETURN(const db::bundle::BundleMergeCounts counts,
                     db::bundle::MergeBundles(inputs_, options, &writer));
    if (key) RETURN_IF_ERROR(db::bundle::SignBundle(file->temporary_path(), *key));
    RETURN_IF_ERROR(file->Commit());
    context.PrintJson({{"file", out_},
                       {"read", counts.read},
                       {"written", counts.written},
                       {"superseded", counts.superseded},
                       {"refused", counts.refused}});
    context.Say("wrote ", counts.written, " tunings to ", out_, "; read ", counts.read, ", ",
                counts.superseded, " of them worse than another, ", counts.refused, " refused");
    return app::ExitCode::kDone;
  }

 private:
  std::string out_;
  std::vector<std::string> inputs_;
  bool no_samples_ = false;
  bool skip_refused_ = false;
  std::optional<std::string> sign_key_;
};

class VerifyCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "verify", "check a bundle, byte by byte and row by row");
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
    v1::ImportBundleResponse refused;  // what it would be refused for
    const absl::Time now = SystemClock().Now();
    {
      output::ProgressBar bar(context.io());
      RETURN_IF_ERROR(db::bundle::ReadWholeBundle(
          reader.get(), trusted, [&](const db::bundle::BundleEntry& entry) {
            bar.ShowBytes("verifying", entry.offset, reader->size());
            const auto tuning = db::bundle::FromBundleTuning(*entry.row, *entry.environment, now);
            if (!tuning.ok()) db::bundle::AddRefusal(entry, tuning.status(), &refused);
          }));
    }
    for (const v1::Refusal& refusal : refused.refusals()) {
      for (const std::string& example : refusal.examples()) {
        context.SayError(file, ": ", example);
      }
    }
    const v1::BundleTrailer& trailer = reader->trailer();
    const std::string signer = absl::BytesToHexString(trailer.public_key());
    context.Say(file, ": ", trailer.tuning_count(), " tunings, ", trailer.environment_count(),
                " environments and places, ", output::FormatBytes(reader->size()), ", ",
                signer.empty() ? "not signed" : "signed by " + signer,
                refused.refused_count() > 0
                    ? absl::StrCat(", ", refused.refused_count(), " tunings break a rule")
                    : ", sound");
    if (refused.refused_count() > 0) *code = app::Worse(*code, app::ExitCode::kFailed);
    return output::JsonRow({{"file", file},
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

std::unique_ptr<app::Command> NewExportCommand() { return std::make_unique<ExportCommand>(); }

std::unique_ptr<app::Command> NewImportCommand() { return std::make_unique<ImportCommand>(); }

std::unique_ptr<app::Command> NewMergeCommand() { return std::make_unique<MergeCommand>(); }

std::unique_ptr<app::Command> NewVerifyCommand() { return std::make_unique<VerifyCommand>(); }

}  // namespace convtune::cli::commands
