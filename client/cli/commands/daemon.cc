// The verbs db, stats, version and environments.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cli/calls/answers.h"
#include "client/cli/commands/commands.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/atomic_file.h"
#include "client/cli/output/fields.h"
#include "client/cli/output/units.h"
#include "proto/base/default_paths.h"
#include "proto/base/status_macros.h"
#include "proto/convert/record_codec.h"
#include "proto/model/environment.h"

namespace convtune::cli::commands {
namespace {

class DbCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* verb = AddVerbGroup(root, "db", "care of the database, through the daemon");
    AddVerbBelow(verb, "check", "structure, foreign keys and every row's checksum", {}, Check);
    AddVerbBelow(verb, "backup", "write a copy into convtuned's --backup-dir, read back", {},
                 [this](app::Context& context) { return Backup(context); })
        ->add_option("file", file_, "name of a new file; without it, convtune-TIME.db")
        ->type_name("NAME");
    AddVerbBelow(verb, "compact", "thin old samples and give free space back", {}, Compact);
  }

 private:
  static absl::StatusOr<app::ExitCode> Check(app::Context& context) {
    ASSIGN_OR_RETURN(const auto response, context.Call<v1::CheckDatabaseResponse>(
                                              v1::CheckDatabaseRequest(), context.long_timeout()));
    context.PrintJson(response);
    for (const std::string& finding : response.findings()) context.SayError(finding);
    context.Say(
        "compared ", response.rows_checked(), " rows: ",
        response.ok() ? "the database is sound" : "the database is damaged; restore a backup");
    ASSIGN_OR_RETURN(const bool all_on_disk, AllOnDisk(context));
    return response.ok() && all_on_disk ? app::ExitCode::kDone : app::ExitCode::kFailed;
  }

  // Says where results are in the daemon's memory only.
  static absl::StatusOr<bool> AllOnDisk(app::Context& context) {
    ASSIGN_OR_RETURN(const auto server, context.Call<v1::ServerInfo>(v1::GetServerInfoRequest()));
    if (server.writable()) return true;
    context.SayError("the database takes no results",
                     server.not_on_disk() > 0
                         ? absl::StrCat(": ", server.not_on_disk(), " are in memory only")
                         : "",
                     "; see `convtune doctor`, and `convtune export` for a copy "
                     "of all");
    return false;
  }

  absl::StatusOr<app::ExitCode> Backup(app::Context& context) const {
    v1::BackupDatabaseRequest request;
    request.set_path(file_);
    ASSIGN_OR_RETURN(const auto response,
                     context.Call<v1::BackupDatabaseResponse>(request, context.long_timeout()));
    context.PrintJson(response);
    context.Say("wrote ", output::FormatBytes(response.bytes()), " to ",
                response.path().empty() ? file_ : response.path(), ", in the daemon's file system");
    ASSIGN_OR_RETURN(const bool all_on_disk, AllOnDisk(context));
    return all_on_disk ? app::ExitCode::kDone : app::ExitCode::kFailed;
  }

  static absl::StatusOr<app::ExitCode> Compact(app::Context& context) {
    ASSIGN_OR_RETURN(const auto response,
                     context.Call<v1::CompactDatabaseResponse>(v1::CompactDatabaseRequest(),
                                                               context.long_timeout()));
    context.PrintJson(response);
    context.Say("thinned ", response.thinned(), " measurements; ",
                output::FormatBytes(response.bytes_before()), " before, ",
                output::FormatBytes(response.bytes_after()), " now");
    return app::ExitCode::kDone;
  }

  std::string file_;
};

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
    CLI::App* app = AddVerb(root, "stats", "hits and misses; newest tunings");
    app->add_flag("--zero", zero_, "show them, and count from zero for this user from now on");
    app->add_option("--last", last_, "how many tunings to show, newest first; without it 5")
        ->type_name("N")
        ->check(CLI::Range(0, 1000));
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    ASSIGN_OR_RETURN(const auto now, context.Call<v1::ServerInfo>(v1::GetServerInfoRequest()));
    ASSIGN_OR_RETURN(const auto newest, Newest(context));
    const std::string path = ZeroPath(context);
    Print(context, now, ReadZero(path, now), newest);
    if (!zero_) return app::ExitCode::kDone;
    std::error_code ignored;  // the file's own error names the path
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
    RETURN_IF_ERROR(output::AtomicFile::WriteWhole(path, "--zero", now.SerializeAsString()));
    context.Say("counting from zero");
    return app::ExitCode::kDone;
  }

 private:
  // A file of this user's for each daemon's address.
  static std::string ZeroPath(app::Context& context) {
    return absl::StrFormat("%s/stats-%016x.zero", UserFolder("XDG_STATE_HOME", ".local/state"),
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

  absl::StatusOr<std::vector<v1::Tuning>> Newest(app::Context& context) const {
    std::vector<v1::Tuning> newest;
    if (last_ == 0) return newest;
    auto request = context.NewRequest<v1::ListTuningsRequest>();
    request.set_page_size(1000);
    do {
      ASSIGN_OR_RETURN(auto page, context.Call<v1::ListTuningsResponse>(request));
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
    const bool zeroed = zero.pid() != 0;
    const output::Fields counts = {
        {"zeroed", "counted since",
         output::Value(zeroed).Shown(zeroed ? "the last --zero"
                                            : output::FormatTimestamp(now.start_time()))},
        {"lookups", "look-ups", lookups},
        {"hits", "hits",
         output::Value(hits).Shown(absl::StrCat(
             hits, lookups > 0 ? absl::StrFormat(" (%.1f%%)", 100.0 * hits / lookups) : ""))},
        {"misses", "misses", lookups - hits},
        {"workerRequests", "worker requests", now.worker_requests() - zero.worker_requests()},
        {"workerStarts", "worker starts", now.worker_starts() - zero.worker_starts()},
        {"tunings", "tunings stored", now.tuning_count()},
        {"newest", "", output::JsonMessages(newest)}};
    context.PrintJson(counts);
    if (context.format() == app::Format::kJson) return;
    std::ostream& out = context.io().out;
    for (const output::Field& count : counts) {
      if (count.heading.empty()) continue;
      out << absl::StrFormat("%-17s%s\n", count.heading, count.value.InTable());
    }
    if (!newest.empty()) out << "\n";
    context.PrintRows(newest, NewestFields);
  }

  bool zero_ = false;
  int last_ = 5;
};

class VersionCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    AddVerb(root, "version", "versions of this program and of the daemon");
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
      context.Say("no answer from the daemon at ", context.settings().client.address.ToText(), ": ",
                  server.status().message());
    }
    return app::ExitCode::kDone;
  }
};

std::string SelfCheckWord(const v1::SelfCheck& check) {
  if (!check.known()) return "not run";
  return check.failed().empty() ? "passed"
                                : absl::StrCat("failed: ", absl::StrJoin(check.failed(), " "));
}

std::string DevicesOf(const v1::ListDevicesResponse& devices, const v1::Environment& environment) {
  std::string names;
  for (const v1::Device& device : devices.devices()) {
    if (device.environment() == environment.name() || device.environment() == environment.text()) {
      absl::StrAppend(&names, names.empty() ? "" : ";", device.name());
    }
  }
  return names;
}

output::Fields EnvironmentFields(const v1::Environment& environment,
                                 const v1::ListDevicesResponse& devices) {
  const std::string names = DevicesOf(devices, environment);
  const auto library = static_cast<LibraryConfiguration>(environment.library_configuration());
  const std::string& profile = environment.mig_profile();
  return {{"environment", "ENVIRONMENT", environment.name()},
          {"gpu", "GPU",
           output::Value(environment.gpu_model())
               .Shown(absl::StrCat(environment.gpu_model(), profile.empty() ? "" : " ", profile))},
          {"compute_capability", "CC", environment.compute_capability()},
          {"sms", "SMS", environment.sm_count()},
          {"mig_profile", "", profile},
          {"cudnn", "CUDNN", environment.cudnn_version()},
          {"library", "LIBRARY", absl::StrReplaceAll(std::string(Name(library)), {{"_", "-"}})},
          {"profile", "", environment.profile()},
          {"current", "", environment.current()},
          {"tunings", "TUNINGS", environment.tuning_count()},
          {"devices", "DEVICES",
           output::Value(names).Shown(environment.current() ? names : "none now")},
          {"", "TEXT", environment.text()}};
}

output::Fields DeviceFields(const v1::Device& device) {
  const auto red_if = [](bool bad) { return bad ? output::Color::kRed : output::Color::kNone; };
  const v1::SelfCheck& check = device.self_check();
  const int64_t worker = device.worker_pid();
  return {
      {"", "DEVICE", device.name()},
      {"", "STATE",
       output::Value(output::EnumWord(device.state(), '-')).In(red_if(!device.reason().empty()))},
      {"", "WORKER", output::Value(worker).Shown(worker != 0 ? absl::StrCat(worker) : "-")},
      {"", "STARTS", device.worker_starts()},
      {"", "DEATHS", device.worker_deaths()},
      {"", "SELF-CHECK", output::Value(SelfCheckWord(check)).In(red_if(!check.failed().empty()))},
      {"", "REASON", device.reason()}};
}

class EnvironmentsCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    AddVerb(root, "environments", "GPUs, cuDNN versions and devices that are known",
            EnvironmentFields({}, {}));
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    ASSIGN_OR_RETURN(auto environments, context.CallPages<v1::ListEnvironmentsResponse>(
                                            v1::ListEnvironmentsRequest()));
    ASSIGN_OR_RETURN(const auto devices,
                     context.Call<v1::ListDevicesResponse>(v1::ListDevicesRequest()));
    const std::string& wanted = context.settings().environment;
    auto& known = *environments.mutable_environments();
    const auto is_other = [&](const v1::Environment& environment) {
      return environment.name() != wanted && environment.text() != wanted;
    };
    if (!wanted.empty()) {
      known.erase(std::remove_if(known.begin(), known.end(), is_other), known.end());
      if (known.empty()) {
        return absl::NotFoundError("--environment: must be one that is known, '" + wanted +
                                   "' is not");
      }
    }
    context.PrintJson({{"environments", output::JsonMessages(environments.environments())},
                       {"devices", output::JsonMessages(devices.devices())}});
    context.PrintRows(environments.environments(), [&](const v1::Environment& environment) {
      return EnvironmentFields(environment, devices);
    });
    if (context.format() != app::Format::kTable) return app::ExitCode::kDone;
    const bool any = !environments.environments().empty();
    if (any && !devices.devices().empty()) context.io().out << "\n";
    context.PrintRows(devices.devices(), DeviceFields);
    if (!any && devices.devices().empty()) context.Say("no environment and no device");
    SayAmbiguous(context, environments);
    return app::ExitCode::kDone;
  }

 private:
  // Environments of one GPU with two versions of cuDNN have the same name: only their texts differ.
  static void SayAmbiguous(app::Context& context, const v1::ListEnvironmentsResponse& response) {
    std::map<std::string, int> counts;
    for (const v1::Environment& environment : response.environments()) {
      ++counts[environment.name()];
    }
    for (const auto& [name, count] : counts) {
      if (count == 1) continue;
      context.Say(count, " environments have the name ", name,
                  ": --environment takes the TEXT of one as well");
    }
  }
};

}  // namespace

std::unique_ptr<app::Command> NewDbCommand() { return std::make_unique<DbCommand>(); }

std::unique_ptr<app::Command> NewStatsCommand() { return std::make_unique<StatsCommand>(); }

std::unique_ptr<app::Command> NewVersionCommand() { return std::make_unique<VersionCommand>(); }

std::unique_ptr<app::Command> NewEnvironmentsCommand() {
  return std::make_unique<EnvironmentsCommand>();
}

}  // namespace convtune::cli::commands
