// The probe finds the devices. It asks the worker, since the daemon itself knows
// neither CUDA nor cuDNN.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/cudnn/program_cudnn.h"
#include "proto/worker_client/worker_client.h"
#include "server/devices/device.h"

namespace convtune::convtuned {

struct ProbeOptions {
  std::string worker;                      // program
  bool worker_named = false;               // somebody asked for that program, or for a cuDNN
  std::string devices;                     // "all", "none" or "0,1"
  std::vector<std::string> profiles = {};  // files
  CudnnToLoad cudnn = {};  // that workers are made to load; without a folder: theirs
  std::string node = {};   // where measurements are made; empty: the host's name
  std::function<bool()> stop = [] { return false; };
};

// A device, or all of a kind, that cannot be used.
struct LeftOut {
  std::string what;    // with the reason
  bool named = false;  // it was asked for: by its number, as a profile, or by the worker's program
};

struct ProbeResult {
  std::vector<devices::DeviceSpec> devices;  // for each cuDNN: GPUs, then profiles, as asked for
  std::vector<LeftOut> left_out;
};

// Runs the worker once for the GPUs and once for each profile, and adds what it finds to `result`,
// which may hold what was found with another cuDNN: a device whose name is taken has its cuDNN in
// its name, and one with the same GPU or profile and environment as another is left out, since one
// worker does for both. What cannot be used is left out with its reason; without a worker program
// all are.
void ProbeDevices(const ProbeOptions& options, ProbeResult* result);

// Reads one line of the worker's answer: a JSON object with name, environment,
// gpu_model, driver_version, cuda_version, gpu_uuid, pci_bus_id, memory_bytes
// and error. FAILED_PRECONDITION with that error if it is not empty.
// worker_argv is left empty.
absl::StatusOr<devices::DeviceSpec> ParseProbeLine(std::string_view line);

struct ChildOutput {
  absl::Status status;  // what went wrong, if anything
  std::string text;     // standard output up to then, at most 1 MiB
};

// Runs a program and waits for its end as long as `limits` allow (what it prints is a sign of life
// as well), but not after `stop` returns true (it is asked ten times a second): what then runs is
// killed and gets DEADLINE_EXCEEDED or CANCELLED. NOT_FOUND: there is no such program; INTERNAL: it
// failed. `library_path` is as WorkerProcess takes it.
ChildOutput RunProgram(const std::vector<std::string>& command, const StartLimits& limits,
                       const std::function<bool()>& stop, const std::string& library_path = "");

}  // namespace convtune::convtuned
