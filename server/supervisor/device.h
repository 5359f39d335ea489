// A DeviceSpec is what the daemon is told about a device at start: how to start its
// worker. What operators see of it is a v1::Device.
#pragma once

#include <string>
#include <vector>

#include "proto/base/histogram.h"
#include "proto/cudnn/program_cudnn.h"
#include "proto/model/environment.h"

namespace convtune::supervisor {

// One GPU, or one profile that stands in for one.
struct DeviceSpec {
  std::string name;  // "gpu:0" or "profile:nvidia-h200"; "gpu:0@9.28.1": with a further cuDNN
  std::vector<std::string> worker_argv;  // program and arguments of its worker
  Environment environment;               // as `convtune-worker --probe` reported it
  Provenance provenance;
  std::string gpu = {};    // "gpu:0", which devices with several cuDNN share; empty: a profile
  CudnnToLoad cudnn = {};  // that its worker is made to load; without a folder: its own
};

// Counts of work that a device was asked for and has done.
struct WorkStats {
  std::string device;
  std::string outcome;         // "succeeded", "failed" or "cancelled"
  HistogramSnapshot duration;  // nanoseconds
};

}  // namespace convtune::supervisor
