// convtune-worker: cuDNN for convtuned, in a process of its own.
#include <sys/prctl.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/base/framing.h"
#include "proto/base/status_macros.h"
#include "proto/convert/record_codec.h"
#include "server/worker/backend.h"
#include "server/worker/cudnn/cudnn_library.h"
#include "server/worker/device/device_info.h"
#include "server/worker/device/device_profile.h"
#include "server/worker/device/nvml_watch.h"
#include "server/worker/session.h"
#include "server/worker/trace.h"

namespace convtune::worker {
namespace {

// Set to anything: a worker that crashes may leave a core.
constexpr char kCoresVariable[] = "CONVTUNE_WORKER_CORES";

struct Flags {
  int fd = -1;
  std::string device;
  std::vector<std::string> profiles;
  bool probe = false;
  std::string watch;
  std::string devices = "none";
  bool dump_profile = false;
  bool libraries = false;
};

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "convtune-worker: %s\n", std::string(status.message()).c_str());
  return 1;
}

absl::StatusOr<int> ParseOrdinal(absl::string_view text) {
  int ordinal = -1;
  absl::ConsumePrefix(&text, "gpu:");
  if (!absl::SimpleAtoi(text, &ordinal) || ordinal < 0) {
    return absl::InvalidArgumentError("--device: must be gpu:N, N from 0");
  }
  return ordinal;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const Flags& flags, const OnStart& on_step) {
  if (flags.device.empty() == flags.profiles.empty() || flags.profiles.size() > 1) {
    return absl::InvalidArgumentError("exactly one of --device and --profile must be given");
  }
  if (!flags.device.empty()) {
    ASSIGN_OR_RETURN(const int ordinal, ParseOrdinal(flags.device));
    return MakeGpuBackend(ordinal, on_step);
  }
  ASSIGN_OR_RETURN(const device::DeviceProfile profile,
                   device::DeviceProfile::Load(flags.profiles[0]));
  return MakeDevicelessBackend(profile);
}

// Returns `failed`, cuDNN's error, unless the libraries of cuDNN that were loaded are mixed: then
// that is the reason, which cuDNN itself does not name.
absl::Status NameMixture(const absl::Status& failed) {
  RETURN_IF_ERROR(cudnn::CheckLoadedCudnn());
  return failed;
}

// A core has gigabytes, and is of little use without the GPU. The kernel starts
// a program that cores are piped to whatever the limit is (core(5)), but for a
// limit of 1 byte, which also leaves no room for a file.
void ForgoCores() {
  const char* const keep = std::getenv(kCoresVariable);
  if (keep != nullptr && *keep != '\0') return;
  rlimit limit = {};
  if (getrlimit(RLIMIT_CORE, &limit) != 0) return;
  limit.rlim_cur = std::min<rlim_t>(1, limit.rlim_max);
  setrlimit(RLIMIT_CORE, &limit);
}

absl::StatusOr<std::unique_ptr<Backend>> StartBackend(const Flags& flags, const OnStart& on_step) {
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeBackend(flags, on_step);
  if (!backend.ok()) return NameMixture(backend.status());
  RETURN_IF_ERROR(on_step("plan a first convolution"));
  // This is done before the handshake is answered. What fails here may work for a problem.
  if (const absl::Status status = WarmUp(backend->get()); !status.ok()) {
    std::fprintf(stderr, "convtune-worker: warming up: %s\n", status.ToString().c_str());
    (*backend)->Recover();
  }
  RETURN_IF_ERROR(cudnn::CheckLoadedCudnn());
  return backend;
}

// OUT_OF_RANGE: the daemon closed its end; DATA_LOSS: what arrived is no request.
absl::StatusOr<worker::v1::Request> Receive(int fd) {
  ASSIGN_OR_RETURN(const std::string frame, ReadFrame(fd, SteadyTime::InfiniteFuture()));
  worker::v1::Request request;
  if (!request.ParseFromString(frame)) return absl::DataLossError("a message that is no request");
  return request;
}

// Tells the daemon why there is no session.
absl::Status Refuse(const absl::Status& why, int fd, const Session::Send& send) {
  RETURN_IF_ERROR(Receive(fd).status());
  worker::v1::Reply reply;
  reply.set_last(true);
  reply.mutable_outcome()->set_message(Utf8(std::string(why.message())));
  RETURN_IF_ERROR(send(reply));
  return why;
}

absl::Status Serve(const Flags& flags, Trace* trace) {
  const Session::Send send = [&flags](const worker::v1::Reply& reply) {
    return WriteFrame(flags.fd, reply.SerializeAsString());
  };
  const absl::StatusOr<std::unique_ptr<Backend>> backend =
      StartBackend(flags, [&send](const char* step) {
        worker::v1::Reply reply;
        reply.set_starting(step);
        return send(reply);
      });
  if (!backend.ok()) return Refuse(backend.status(), flags.fd, send);
  Session session(backend->get(), trace);
  absl::Status status;
  while (status.ok()) {
    const absl::StatusOr<worker::v1::Request> request = Receive(flags.fd);
    status = request.ok() ? session.Handle(*request, send) : request.status();
  }
  // The daemon has closed its end: it has no more work.
  return absl::IsOutOfRange(status) ? absl::OkStatus() : status;
}

// Prints a device, or why it cannot be had, so that the daemon says it.
void PrintDevice(const std::string& name, const absl::StatusOr<device::DeviceInfo>& found) {
  device::DeviceInfo info;
  info.name = name;
  if (found.ok()) info = *found;
  std::printf("%s\n", device::ToProbeJson(info, std::string(found.status().message())).c_str());
}

void ProbeGpu(int ordinal) {
  PrintDevice(absl::StrCat("gpu:", ordinal), device::DescribeGpu(ordinal));
}

absl::StatusOr<device::DeviceInfo> ProbeProfile(const std::string& path) {
  ASSIGN_OR_RETURN(const device::DeviceProfile profile, device::DeviceProfile::Load(path));
  RETURN_IF_ERROR(NameMixture(MakeDevicelessBackend(profile).status()));
  return device::DescribeProfile(profile);
}

absl::Status Probe(const Flags& flags) {
  if (flags.devices == "all") {
    const absl::StatusOr<int> count = device::CountGpus();
    if (!count.ok()) PrintDevice("GPUs", count.status());
    for (int ordinal = 0; count.ok() && ordinal < *count; ++ordinal) {
      ProbeGpu(ordinal);
    }
  } else if (flags.devices != "none") {
    for (const absl::string_view part : absl::StrSplit(flags.devices, ',')) {
      const absl::StatusOr<int> ordinal = ParseOrdinal(part);
      if (!ordinal.ok()) {
        return absl::InvalidArgumentError(
            "--devices: must be all, none or numbers with commas between");
      }
      ProbeGpu(*ordinal);
    }
  }
  for (const std::string& path : flags.profiles) {
    PrintDevice(absl::StrCat("profile:", path), ProbeProfile(path));
  }
  return absl::OkStatus();
}

absl::Status DumpProfile(const Flags& flags) {
  ASSIGN_OR_RETURN(const int ordinal, ParseOrdinal(flags.device));
  ASSIGN_OR_RETURN(const std::string json, device::DumpDeviceProperties(ordinal));
  std::printf("%s\n", json.c_str());
  return absl::OkStatus();
}

void PrintLibraries() {
  const cudnn::CudaLibraries found = cudnn::LocateCudaLibraries();
  std::printf("cuda %d\ncudnn %s\ncublaslt %s\nnvrtc %s\n", found.cuda_major,
              found.cudnn_folder.c_str(), found.cublaslt.c_str(), found.nvrtc.c_str());
}

absl::Status Run(const Flags& flags) {
  ForgoCores();
  // While a CUDA context is there the driver keeps the GPU's clocks up, unless this
  // variable is set. Then they would sink between samples, and so would what is measured.
  unsetenv("CUDA_DISABLE_PERF_BOOST");
  if (flags.libraries) {
    PrintLibraries();
    return absl::OkStatus();
  }
  const absl::StatusOr<std::unique_ptr<Trace>> trace = Trace::FromEnvironment();
  if (flags.probe) {
    if (trace.ok()) {
      return Probe(flags);
    }
    PrintDevice("convtune-worker", trace.status());
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(trace.status());
  if (flags.dump_profile) {
    return DumpProfile(flags);
  }
  if (flags.fd < 0) {
    return absl::InvalidArgumentError(
        "one of --fd, --probe, --dump-profile and --libraries must be given");
  }
  // The daemon must not leave workers behind, however it ends. Where it has ended before this
  // call, its end of the socket is closed, and the first word to it fails.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!flags.watch.empty()) return device::WatchDevice(flags.watch, flags.fd);
  return Serve(flags, trace->get());
}

}  // namespace
}  // namespace convtune::worker

// NOLINTNEXTLINE(bugprone-exception-escape): without memory it ends all the same.
int main(int argc, char** argv) {
  convtune::worker::Flags flags;
  CLI::App app("Searches and times cuDNN's convolution algorithms for convtuned, which starts it.",
               "convtune-worker");
  app.add_option("--fd", flags.fd, "Inherited socket to the daemon");
  app.add_option("--device", flags.device, "The GPU to use: gpu:N");
  app.add_option("--profile", flags.profiles, "Device-properties file that stands in for a GPU");
  app.add_flag("--probe", flags.probe, "Print each device as a line of JSON, and end");
  app.add_option("--devices", flags.devices, "With --probe: all, none, or numbers such as 0,1");
  app.add_option("--watch", flags.watch,
                 "With --fd: report the errors of the GPU at this PCI address, and nothing else");
  app.add_flag("--dump-profile", flags.dump_profile,
               "With --device: print the GPU's device properties as JSON, and end");
  app.add_flag("--libraries", flags.libraries,
               "Print where cuDNN and what it loads lie, a line for each, and end");
  app.set_version_flag("--version", CONVTUNE_VERSION);
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = convtune::worker::Run(flags);
  return status.ok() ? 0 : convtune::worker::Fail(status);
}
