#include <CLI/CLI.hpp>
#include <map>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/commands/commands.h"
#include "client/cli/output/json.h"
#include "client/cli/output/table.h"
#include "client/cli/output/units.h"
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

std::string Tables(app::Context& context, const v1::ListEnvironmentsResponse& environments,
                   const v1::ListDevicesResponse& devices) {
  output::Table table({{"ENVIRONMENT"},
                       {"GPU"},
                       {"CC"},
                       {"SMS", output::Align::kRight},
                       {"CUDNN"},
                       {"LIBRARY"},
                       {"TUNINGS", output::Align::kRight},
                       {"DEVICES"},
                       {"TEXT"}});
  for (const v1::Environment& environment : environments.environments()) {
    const std::string gpu =
        environment.mig_profile().empty()
            ? environment.gpu_model()
            : absl::StrCat(environment.gpu_model(), " ", environment.mig_profile());
    const std::string names = DevicesOf(devices, environment.name());
    table.Add({environment.name(), gpu, environment.compute_capability(),
               absl::StrCat(environment.sm_count()), environment.cudnn_version(),
               LibraryWord(environment.library_configuration()),
               absl::StrCat(environment.tuning_count()),
               environment.current() ? names : std::string("none now"), environment.text()});
  }
  output::Table states({{"DEVICE"},
                        {"STATE"},
                        {"WORKER", output::Align::kRight},
                        {"STARTS", output::Align::kRight},
                        {"DEATHS", output::Align::kRight},
                        {"SELF-CHECK"},
                        {"REASON"}});
  for (const v1::Device& device : devices.devices()) {
    const bool bad = !device.reason().empty();
    states.Add(
        {device.name(),
         {output::EnumWord(device.state(), '-'), bad ? output::Color::kRed : output::Color::kNone},
         device.worker_pid() != 0 ? absl::StrCat(device.worker_pid()) : "-",
         absl::StrCat(device.worker_starts()),
         absl::StrCat(device.worker_deaths()),
         {SelfCheckWord(device.self_check()),
          device.self_check().failed().empty() ? output::Color::kNone : output::Color::kRed},
         device.reason()});
  }
  std::string out;
  if (!table.empty()) out += table.Render(context.table_width(), context.out_color());
  if (!states.empty()) {
    absl::StrAppend(&out, out.empty() ? "" : "\n",
                    states.Render(context.table_width(), context.out_color()));
  }
  return out;
}

class EnvironmentsCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    AddVerb(root, "environments", "GPUs, cuDNN versions and devices that are known",
            app::Rows::kYes);
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    ASSIGN_OR_RETURN(const auto client, context.Connect());
    ASSIGN_OR_RETURN(auto environments, client->ListEnvironments());
    ASSIGN_OR_RETURN(const auto devices, client->ListDevices());
    const std::string& wanted = context.settings().environment;
    if (!wanted.empty() && !KeepOnly(wanted, &environments)) {
      return absl::NotFoundError("--environment: must be one that is known, '" + wanted +
                                 "' is not");
    }
    context.PrintJson(output::JsonObject()
                          .AddRaw("environments", output::JsonMessages(environments.environments()))
                          .AddRaw("devices", output::JsonMessages(devices.devices()))
                          .Take());
    if (context.format() == app::Format::kTable) {
      const std::string tables = Tables(context, environments, devices);
      if (tables.empty()) context.Say("no environment and no device");
      context.io().out << tables;
      SayAmbiguous(context, environments);
    }
    context.PrintCsv({"environment", "gpu", "compute_capability", "sms", "mig_profile", "cudnn",
                      "library", "profile", "current", "tunings", "devices"});
    for (const v1::Environment& environment : environments.environments()) {
      context.PrintCsv(
          {environment.name(), environment.gpu_model(), environment.compute_capability(),
           absl::StrCat(environment.sm_count()), environment.mig_profile(),
           environment.cudnn_version(), LibraryWord(environment.library_configuration()),
           environment.profile() ? "true" : "false", environment.current() ? "true" : "false",
           absl::StrCat(environment.tuning_count()), DevicesOf(devices, environment.name())});
    }
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
