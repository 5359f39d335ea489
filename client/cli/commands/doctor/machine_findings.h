// Findings about the machine, or the container, that a daemon or a program runs
// on: what is wrong, and what to do about it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/cli/commands/doctor/daemon_findings.h"
#include "convtune/v1/fleet_service.pb.h"

namespace convtune::cli::commands::doctor {

// The outcome of a try to use a file from this process.
struct SeenFile {
  std::string path;
  int error = 0;  // errno; 0: the try succeeded
};

// Value type. What could not be found out is absent.
struct MachineFacts {
  bool container = false;
  std::optional<int64_t> disk_free;  // bytes below the daemon's state directory
  absl::Time now = absl::UnixEpoch();
  std::optional<bool> clock_kept;         // the kernel's clock is synchronised
  std::string library;                    // the interposer's, empty: not found
  std::optional<SeenFile> snapshot;       // reading what programs here would read
  std::optional<SeenFile> report_socket;  // writing to it
  std::string switched_off;               // by which file or variable; empty: it is not
};

// Looks at this machine. `server` and `publication` say where; `here` is whether
// the daemon's paths mean anything here (a unix socket).
MachineFacts LookAtMachine(const v1::ServerInfo& server, const v1::Publication& publication,
                           bool here);

// Pure functions.
std::vector<app::Finding> ExamineDisk(const v1::ServerInfo& server, const MachineFacts& facts);
std::vector<app::Finding> ExamineClock(const v1::ServerInfo& server, const MachineFacts& facts);
std::vector<app::Finding> ExamineInterposer(const MachineFacts& facts);
// Driver, CUDA, cuDNN and its configuration of the environments that a device has.
std::vector<app::Finding> ExamineLibraries(const v1::ListEnvironmentsResponse& environments);
std::vector<app::Finding> ExamineFleet(const v1::FleetState& state);

}  // namespace convtune::cli::commands::doctor
