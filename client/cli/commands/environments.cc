#include <CLI/CLI.hpp>
#include <map>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/commands/commands.h"
#include "client/cli/output/units.h"
#include "client/cli/output/value.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::commands {
namespace {

std::string LibraryWord(v1::LibraryConfiguration configuration) {
  if (configuration == v1::LIBRARY_CONFIGURATION_FULL) return "full";
  if (configuration == v1::LIBRARY_CONFIGURATION_GRAPH_JIT_ONLY) return "graph-jit-only";
  return "unknown";
}

std::string SelfCheckWord(const v1::SelfCheck& check) {
  if (!check.known()) return "not run";
  return check.failed().empty() ? "passed"
                                : absl::StrCat("failed: ", absl::StrJoin(check.failed(), " "));
}

std::string DevicesOf(const v1::ListDevicesResponse& devices, const std::string& environment) {
  std::string names;
  for (const v1::Device& device : devices.devices()) {
    if (device.environment() == environment) {
      absl::StrAppend(&names, names.empty() ? "" : ";", device.name());
    }
  }
  return names;
}

output::Fields EnvironmentFields(const v1::Environment& environment,
                                 const v1::ListDevicesResponse& devices) {
  const std::string names = DevicesOf(devices, environment.name());
  const std::string profile = environment.mig_profile();
  return {{"environment", "ENVIRONMENT", environment.name()},
          {"gpu", "GPU",
           output::Value(environment.gpu_model())
               .Shown(absl::StrCat(environment.gpu_model(), profile.empty() ? "" : " ", profile))},
          {"compute_capability", "CC", environment.compute_capability()},
          {"sms", "SMS", environment.sm_count()},
          {"mig_profile", "", profile},
          {"cudnn", "CUDNN", environment.cudnn_version()},
          {"library", "LIBRARY", LibraryWord(environment.library_configuration())},
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
    CLI::App* app = AddVerb(root, "environments", "GPUs, cuDNN versions and devices that are known",
                            app::Rows::kYes);
    app::SayColumns(app, EnvironmentFields({}, {}));
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    ASSIGN_OR_RETURN(const auto client, context.Connect());
    ASSIGN_OR_RETURN(auto environments, client->CallPages<v1::ListEnvironmentsResponse>(
                                            v1::ListEnvironmentsRequest()));
    ASSIGN_OR_RETURN(const auto devices,
                     client->Call<v1::ListDevicesResponse>(v1::ListDevicesRequest()));
    const std::string& wanted = context.settings().environment;
    if (!wanted.empty() && !KeepOnly(wanted, &environments)) {
      return absl::NotFoundError("--environment: must be one that is known, '" + wanted +
                                 "' is not");
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
  // Two versions of cuDNN have the same name: only their texts differ.
  static void SayAmbiguous(app::Context& context, const v1::ListEnvironmentsResponse& response) {
    std::map<std::string, int> counts;
    for (const v1::Environment& environment : response.environments()) {
      ++counts[environment.name()];
    }
    for (const auto& [name, count] : counts) {
      if (count == 1) continue;
      context.Say(absl::StrCat(count, " environments have the name ", name,
                               ": --environment takes the TEXT of one as well"));
    }
  }

  // False if no environment has that name or text.
  static bool KeepOnly(const std::string& name, v1::ListEnvironmentsResponse* response) {
    v1::ListEnvironmentsResponse kept;
    for (const v1::Environment& environment : response->environments()) {
      if (environment.name() == name || environment.text() == name) {
        *kept.add_environments() = environment;
      }
    }
    *response = std::move(kept);
    return response->environments_size() > 0;
  }
};

}  // namespace

std::unique_ptr<app::Command> NewEnvironmentsCommand() {
  return std::make_unique<EnvironmentsCommand>();
}

}  // namespace convtune::cli::commands
