#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/calls/answer_output.h"
#include "client/cli/commands/commands.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/atomic_file.h"
#include "client/cli/output/units.h"
#include "client/cli/output/value.h"
#include "proto/base/status_macros.h"
#include "proto/convert/record_codec.h"
#include "proto/model/tuning/digest.h"

namespace convtune::cli::commands {
namespace {

output::Fields NewestFields(const v1::Tuning& tuning) {
  const double seconds = absl::ToDoubleSeconds(FromProto(tuning.elapsed()));
  return {{"", "TUNED", output::FormatTimestamp(tuning.tune_time())},
          {"", "TOOK", output::Value(absl::StrFormat("%.2f s", seconds)).Right()},
          {"", "EVIDENCE", calls::EvidenceValue(tuning.evidence(), tuning.environment().name())},
          {"", "PROBLEM", input::ProblemValue(tuning.problem_text())},
          {"", "WINNER", tuning.winner().empty() ? "-" : tuning.winner()}};
}

// The daemon counts from its start for everybody. --zero keeps what it has
// counted by then in a file of this user's, and later runs subtract that.
class StatsCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "stats", "hits and misses; newest tunings", app::Rows::kNo);
    app->add_flag("--zero", zero_, "show them, and count from zero for this user from now on");
    app->add_option("--last", last_, "how many tunings to show, newest first; without it 5")
        ->type_name("N")
        ->check(CLI::Range(0, 1000));
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    ASSIGN_OR_RETURN(const auto client, context.Connect());
    ASSIGN_OR_RETURN(const auto now, client->Call<v1::ServerInfo>(v1::GetServerInfoRequest()));
    ASSIGN_OR_RETURN(const auto newest, Newest(context, *client));
    const std::string path = ZeroPath(context);
    Print(context, now, ReadZero(path, now), newest);
    if (!zero_) return app::ExitCode::kDone;
    RETURN_IF_ERROR(WriteZero(path, now));
    context.Say("counting from zero");
    return app::ExitCode::kDone;
  }

 private:
  // A file of this user's for each daemon's address. Empty without a home.
  static std::string ZeroPath(app::Context& context) {
    const auto variable = [&](const char* name) { return context.io().env(name).value_or(""); };
    std::string state = variable("XDG_STATE_HOME");
    const std::string home = variable("HOME");
    if (state.empty() && home.empty()) return "";
    if (state.empty()) state = home + "/.local/state";
    return absl::StrFormat("%s/convtune/stats-%016x.zero", state,
                           Checksum64(context.settings().client.address.ToText()));
  }

  // Counts at the last --zero, all 0 if there was none since this daemon's start.
  static v1::ServerInfo ReadZero(const std::string& path, const v1::ServerInfo& now) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    v1::ServerInfo zero;
    const bool same = zero.ParseFromString(bytes) && zero.pid() == now.pid() &&
                      zero.start_time().seconds() == now.start_time().seconds() &&
                      zero.start_time().nanos() == now.start_time().nanos();
    return same ? zero : v1::ServerInfo();
  }

  static absl::Status WriteZero(const std::string& path, const v1::ServerInfo& now) {
    if (path.empty()) {
      return absl::FailedPreconditionError("--zero: HOME or XDG_STATE_HOME must be set");
    }
    std::error_code ignored;  // the file's own error names the path
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
    ASSIGN_OR_RETURN(const auto file, output::AtomicFile::Create(path, "--zero"));
    RETURN_IF_ERROR(file->Write(now.SerializeAsString()));
    return file->Commit();
  }

  absl::StatusOr<std::vector<v1::Tuning>> Newest(const app::Context& context,
                                                 client::Client& client) const {
    std::vector<v1::Tuning> newest;
    if (last_ == 0) return newest;
    v1::ListTuningsRequest request;
    request.set_environment(context.settings().environment);
    request.set_page_size(1000);
    do {
      ASSIGN_OR_RETURN(auto page, client.Call<v1::ListTuningsResponse>(request));
      std::move(page.mutable_tunings()->begin(), page.mutable_tunings()->end(),
                std::back_inserter(newest));
      std::sort(newest.begin(), newest.end(), [](const v1::Tuning& a, const v1::Tuning& b) {
        return std::pair(a.tune_time().seconds(), a.tune_time().nanos()) >
               std::pair(b.tune_time().seconds(), b.tune_time().nanos());
      });
      if (newest.size() > static_cast<size_t>(last_)) newest.resize(last_);
      request.set_page_token(page.next_page_token());
    } while (!request.page_token().empty());
    return newest;
  }

  static void Print(app::Context& context, const v1::ServerInfo& now, const v1::ServerInfo& zero,
                    const std::vector<v1::Tuning>& newest) {
    const int64_t lookups = now.lookups() - zero.lookups();
    const int64_t hits = now.hits() - zero.hits();
    const int64_t requests = now.worker_requests() - zero.worker_requests();
    const int64_t starts = now.worker_starts() - zero.worker_starts();
    context.PrintJson({{"zeroed", zero.pid() != 0},
                       {"lookups", lookups},
                       {"hits", hits},
                       {"misses", lookups - hits},
                       {"workerRequests", requests},
                       {"workerStarts", starts},
                       {"tunings", now.tuning_count()},
                       {"newest", output::JsonMessages(newest)}});
    if (context.format() == app::Format::kJson) return;
    std::ostream& out = context.io().out;
    out << "counted since    "
        << (zero.pid() != 0 ? "the last --zero" : output::FormatTimestamp(now.start_time())) << "\n"
        << "look-ups         " << lookups << "\n"
        << "hits             " << hits;
    if (lookups > 0) out << absl::StrFormat(" (%.1f%%)", 100.0 * hits / lookups);
    out << "\nmisses           " << lookups - hits << "\n"
        << "worker requests  " << requests << "\n"
        << "worker starts    " << starts << "\n"
        << "tunings stored   " << now.tuning_count() << "\n";
    if (!newest.empty()) out << "\n";
    context.PrintRows(newest, NewestFields);
  }

  bool zero_ = false;
  int last_ = 5;
};

}  // namespace

std::unique_ptr<app::Command> NewStatsCommand() { return std::make_unique<StatsCommand>(); }

}  // namespace convtune::cli::commands
