// convtune-fake-worker: speaks the worker protocol without CUDA, for what the
// machine lacks: a GPU and its faults. It takes convtune-worker's flags, and
// --environment and --script (or CONVTUNE_FAKE_SCRIPT); see fake_script.proto.
#include <signal.h>
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/base/status_macros.h"
#include "server/worker/device/nvml_watch.h"
#include "tests/fakes/fake_script.h"
#include "tests/fakes/fake_session.h"
#include "tests/fakes/recording.h"
#include "tests/fakes/replay_session.h"

namespace convtune {
namespace {

struct Flags {
  int fd = -1;
  std::string environment;
  std::string script;
  std::string device;
  bool probe = false;
  std::string watch;
  bool dump_profile = false;
  std::string devices = "none";
  std::vector<std::string> profiles;
};

// "nvidia-h200" of "deploy/profiles/nvidia-h200.json".
std::string ProfileName(const std::string& path) {
  std::string name = path.substr(path.find_last_of('/') + 1);
  return absl::StrCat("profile:", name.substr(0, name.find('.')));
}

std::string DeviceName(const Flags& flags) {
  if (!flags.profiles.empty()) return ProfileName(flags.profiles[0]);
  return flags.device.empty() ? "gpu:0" : flags.device;
}

// "NVIDIA H200" for the model that is the default, else as the script has it.
std::string ModelName(absl::string_view environment) {
  absl::ConsumePrefix(&environment, "profile:");
  const std::string slug(environment.substr(0, environment.find(',')));
  return slug == "nvidia-h200" ? "NVIDIA H200" : slug;
}

void PrintProbe(const std::string& name, const std::string& environment, const FakeScript& script) {
  std::printf(
      "{\"name\":\"%s\",\"environment\":\"%s\",\"gpu_model\":\"%s\","
      "\"driver_version\":\"%s\",\"cuda_version\":\"13.0\",\"cublaslt_build\":\"%s\","
      "\"nvrtc_build\":\"%s\",\"gpu_uuid\":\"\","
      "\"pci_bus_id\":\"%s\",\"memory_bytes\":150000000000,\"error\":\"\"}\n",
      name.c_str(), environment.c_str(), ModelName(environment).c_str(), script.driver().c_str(),
      script.cublaslt().c_str(), script.nvrtc().c_str(), script.card().c_str());
}

void Probe(const Flags& flags, const FakeScript& script) {
  std::vector<std::string> names;
  if (flags.devices == "all") {
    names.push_back("gpu:0");
  } else if (flags.devices != "none") {
    for (const std::string& ordinal :
         std::vector<std::string>(absl::StrSplit(flags.devices, ','))) {
      names.push_back(absl::StrCat("gpu:", ordinal));
    }
  }
  for (const std::string& profile : flags.profiles) names.push_back(ProfileName(profile));
  for (const std::string& name : names) {
    PrintProbe(name,
               script.environment().empty() ? FakeEnvironmentText(name) : script.environment(),
               script);
  }
}

absl::Status Run(const Flags& flags) {
  const char* variable = std::getenv("CONVTUNE_FAKE_SCRIPT");
  ASSIGN_OR_RETURN(FakeScript script, LoadScript(!flags.script.empty() ? flags.script
                                                 : variable != nullptr ? variable
                                                                       : ""));
  std::optional<Recording> recording;
  if (!script.recording().empty()) {
    ASSIGN_OR_RETURN(recording, Recording::Load(script.recording()));
    script.set_environment(recording->environment().ToText());
  }
  if (flags.probe) {
    Probe(flags, script);
    return absl::OkStatus();
  }
  if (flags.dump_profile) {
    std::printf("{}\n");
    return absl::OkStatus();
  }
  if (flags.fd < 0) return absl::InvalidArgumentError("--fd: must be given");
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!flags.watch.empty()) return worker::device::WatchDevice(flags.watch, flags.fd);
  if (recording) return ReplaySession(flags.fd, *std::move(recording)).Serve();
  if (script.environment().empty()) script.set_environment(flags.environment);
  if (script.environment().empty()) script.set_environment(FakeEnvironmentText(DeviceName(flags)));
  return FakeSession(flags.fd, std::move(script)).Serve();
}

}  // namespace
}  // namespace convtune

int main(int argc, char** argv) {
  convtune::Flags flags;
  CLI::App app("A worker without a GPU, for tests.");
  app.add_option("--fd", flags.fd, "Socket to the daemon");
  app.add_option("--environment", flags.environment, "Environment to report");
  app.add_option("--script", flags.script, "Script, or a file that holds one");
  app.add_option("--device", flags.device, "gpu:N");
  app.add_flag("--probe", flags.probe, "Describe the devices and exit");
  app.add_option("--watch", flags.watch, "Watch the GPU at this PCI address");
  app.add_flag("--dump-profile", flags.dump_profile, "Print properties of no GPU and exit");
  app.add_option("--devices", flags.devices, "all, none or numbers");
  app.add_option("--profile", flags.profiles, "Device-properties profile");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = convtune::Run(flags);
  if (!status.ok()) {
    std::fprintf(stderr, "convtune-fake-worker: %s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}
