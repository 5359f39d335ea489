// A DeviceSpec is what the daemon is told about a device at start: how to start its
// worker. A DeviceStatus is what operators see of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/base/histogram.h"
#include "proto/model/environment.h"
#include "proto/model/tuning/self_check.h"

namespace convtune::supervisor {

// One GPU, or one profile that stands in for one.
struct DeviceSpec {
  std::string name;                      // "gpu:0" or "profile:nvidia-h200"
  std::vector<std::string> worker_argv;  // program and arguments of its worker
  Environment environment;               // as `convtune-worker --probe` reported it
  Provenance provenance;
};

enum class DeviceState { kIdle = 1, kReady = 2, kBusy = 3, kBackingOff = 4, kUnavailable = 5 };

struct DeviceStatus {
  std::string name;
  std::string environment;  // name
  DeviceState state = DeviceState::kIdle;
  std::string reason;  // why kBackingOff or kUnavailable
  int64_t worker_pid = 0;
  int64_t worker_starts = 0;
  int64_t worker_deaths = 0;
  // The self-check of the last worker; before the first one is started, that of the worker
  // of an earlier daemon, as far as it was kept.
  SelfCheck self_check = {};
  // Conditions::unblocked of the last tuning that timed something.
  std::string unblocked = {};
};

// Counts of work that a device was asked for and has done.
struct WorkStats {
  std::string device;
  std::string outcome;         // "succeeded", "failed" or "cancelled"
  HistogramSnapshot duration;  // nanoseconds
};

}  // namespace convtune::supervisor
