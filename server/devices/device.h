// A DeviceSpec is what the daemon is told about a device at start: how to start its
// worker. What operators see of it is a v1::Device.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/base/histogram.h"
#include "proto/cudnn/program_cudnn.h"
#include "proto/model/environment.h"

namespace convtune::devices {

// One GPU, or one profile that stands in for one.
struct DeviceSpec {
  std::string name;  // "gpu:0" or "profile:nvidia-h200"; "gpu:0@9.28.1": with a further cuDNN
  std::vector<std::string> worker_argv;  // program and arguments of its worker
  Environment environment;               // as `convtune-worker --probe` reported it
  Provenance provenance;
  std::string gpu = {};         // "gpu:0", which devices with several cuDNN share; empty: a profile
  std::string pci_bus_id = {};  // of the GPU: "0000:01:00.0"
  CudnnToLoad cudnn = {};       // that its worker is made to load; without a folder: its own
};

// Limits on the workers of all devices.
struct WorkerLimits {
  // A worker without work for this long is ended, which gives its GPU back.
  absl::Duration idle_timeout = absl::Minutes(5);
  // Pause before a dead worker is started again; doubles up to the maximum.
  absl::Duration backoff_initial = absl::Milliseconds(200);
  absl::Duration backoff_max = absl::Seconds(30);
  // The daemon kills a worker that has sent nothing for this long, as hung. A worker
  // sends the number of each candidate before it runs it. While the worker lists
  // candidates, it sends none, and has the budget of the listing besides.
  absl::Duration hang_timeout = absl::Seconds(30);
  // The time for which other work waits for a late worker, or for the search for the
  // candidate that a worker hung on. Longer than a worker takes to load cuDNN, since
  // another worker would have to load it anew.
  absl::Duration late_work_timeout = absl::Seconds(5);
};

// Counts of work that a device was asked for and has done.
struct WorkStats {
  std::string device;
  std::string outcome;         // "succeeded", "failed" or "cancelled"
  HistogramSnapshot duration;  // nanoseconds
};

}  // namespace convtune::devices
