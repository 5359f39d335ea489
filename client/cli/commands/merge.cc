#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/commands/commands.h"
#include "client/cli/output/atomic_file.h"
#include "client/cli/output/progress.h"
#include "client/cli/output/value.h"
#include "db/bundle/bundle_format.h"
#include "db/bundle/bundle_merge.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::commands {
namespace {

class MergeCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app =
        AddVerb(root, "merge", "make one bundle of several, the better tuning of each problem",
                app::Rows::kNo);
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
    db::bundle::BundleWriter writer(
        {.with_samples = !no_samples_, .signing_key = key ? &*key : nullptr},
        [&](std::string_view bytes) { return file->Write(bytes); });
    output::ByteProgress progress(context.io(), "merging", TotalSize());
    db::bundle::BundleMergeOptions options;
    options.now = SystemClock().Now();
    options.skip_refused = skip_refused_;
    options.refused = [&](const std::string& text) { context.SayError(text); };
    options.progress = [&](int64_t bytes) { progress.Show(bytes); };
    ASSIGN_OR_RETURN(const db::bundle::BundleMergeCounts counts,
                     db::bundle::MergeBundles(inputs_, options, &writer));
    RETURN_IF_ERROR(file->Commit());
    context.PrintJson({{"file", out_},
                       {"read", counts.read},
                       {"written", counts.written},
                       {"superseded", counts.superseded},
                       {"refused", counts.refused}});
    context.Say(absl::StrCat("wrote ", counts.written, " tunings to ", out_, "; read ", counts.read,
                             ", ", counts.superseded, " of them worse than another, ",
                             counts.refused, " refused"));
    return app::ExitCode::kDone;
  }

 private:
  int64_t TotalSize() const {
    int64_t total = 0;
    std::error_code error;
    for (const std::string& input : inputs_) {
      const auto size = std::filesystem::file_size(input, error);
      if (!error) total += static_cast<int64_t>(size);
    }
    return total;
  }

  std::string out_;
  std::vector<std::string> inputs_;
  bool no_samples_ = false;
  bool skip_refused_ = false;
  std::optional<std::string> sign_key_;
};

}  // namespace

std::unique_ptr<app::Command> NewMergeCommand() { return std::make_unique<MergeCommand>(); }

}  // namespace convtune::cli::commands
