#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/commands/commands.h"
#include "client/cli/commands/report/report_output.h"
#include "client/cli/output/atomic_file.h"
#include "client/cli/output/progress.h"
#include "convtune/v1/release_service.pb.h"
#include "db/bundle/bundle_codec.h"
#include "db/bundle/bundle_reader.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::commands::report {
namespace {

constexpr int kMostWanted = 1000;

class ReportCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app =
        AddVerb(root, "report", "what wins, what it gains, who disagrees, what got slower",
                app::Rows::kYes);
    app->add_option("bundles", bundles_,
                    "bundles of any number of nodes; without one, the daemon is asked")
        ->type_name("FILE");
    output_.Register(*app);
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    ASSIGN_OR_RETURN(const convtune::report::ReportOptions options, output_.Options());
    convtune::report::ReportData data(output_.Filter());
    if (bundles_.empty()) {
      RETURN_IF_ERROR(AskDaemon(context, &data));
    }
    for (const std::string& bundle : bundles_) {
      RETURN_IF_ERROR(Read(context, bundle, bundle, &data));
    }
    RETURN_IF_ERROR(output_.Write(std::move(data), options, context.format(), context.io()));
    return app::ExitCode::kDone;
  }

 private:
  // Adds what the bundle has. `name` is for words.
  static absl::Status Read(app::Context& context, const std::string& path, const std::string& name,
                           convtune::report::ReportData* data) {
    output::ByteProgress progress(context.io(), absl::StrCat("reading ", name), 0);
    ASSIGN_OR_RETURN(const std::unique_ptr<db::bundle::BundleReader> reader,
                     db::bundle::BundleReader::Open(path));
    const absl::Time now = SystemClock().Now();
    int64_t refused = 0;
    db::bundle::BundleEntry entry;
    while (true) {
      ASSIGN_OR_RETURN(const bool more, reader->Next(&entry));
      if (!more) break;
      const absl::StatusOr<Tuning> tuning =
          db::bundle::FromBundleTuning(*entry.row, *entry.environment, now);
      if (tuning.ok()) {
        data->Add(*tuning, entry.environment->environment);
      } else {
        ++refused;
      }
      progress.Show(reader->offset());
    }
    if (refused > 0) {
      context.Say(absl::StrCat(name, ": left out ", refused, refused == 1 ? " row" : " rows",
                               " that break a rule; `convtune verify` names them"));
    }
    return absl::OkStatus();
  }

  // A node is what it would export, with its counters and what it misses.
  absl::Status AskDaemon(app::Context& context, convtune::report::ReportData* data) const {
    ASSIGN_OR_RETURN(client::Client* const client, context.Connect());
    ASSIGN_OR_RETURN(const v1::ServerInfo info,
                     client->Call<v1::ServerInfo>(v1::GetServerInfoRequest()));
    data->AddCounters({info.lookups(), info.hits()});
    const char* folder = std::getenv("TMPDIR");
    const std::filesystem::path path =
        std::filesystem::path(folder != nullptr && *folder != '\0' ? folder : "/tmp") /
        "convtune-report";
    // Never committed, so nothing of it stays.
    ASSIGN_OR_RETURN(const std::unique_ptr<output::AtomicFile> file,
                     output::AtomicFile::Create(path.string(), "TMPDIR"));
    v1::ExportBundleRequest request;
    request.set_environment(context.settings().environment);
    request.set_omit_samples(true);
    request.set_include_simulated(true);
    RETURN_IF_ERROR(client->ExportBundle(
        request, [&](const std::string& piece) { return file->Write(piece); },
        context.long_timeout()));
    RETURN_IF_ERROR(Read(context, file->temporary_path(), "the daemon's tunings", data));
    return AddWanted(context, data);
  }

  static absl::Status AddWanted(app::Context& context, convtune::report::ReportData* data) {
    ASSIGN_OR_RETURN(client::Client* const client, context.Connect());
    v1::ListWantedRequest request;
    request.set_environment(context.settings().environment);
    request.set_max_problems(kMostWanted);
    const absl::StatusOr<v1::ListWantedResponse> response =
        client->CallPages<v1::ListWantedResponse>(request, request.max_problems());
    // A daemon that publishes nothing has no such list.
    if (absl::IsUnimplemented(response.status())) return absl::OkStatus();
    if (!response.ok()) return response.status();
    for (const v1::WantedProblem& wanted : response->wanted()) {
      data->AddWanted({wanted.problem_text(), wanted.environment(), wanted.miss_count(), 1,
                       wanted.last_error()});
    }
    return absl::OkStatus();
  }

  std::vector<std::string> bundles_;
  ReportOutput output_;
};

}  // namespace

std::unique_ptr<app::Command> NewReportCommand() { return std::make_unique<ReportCommand>(); }

}  // namespace convtune::cli::commands::report
