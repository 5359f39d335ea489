// Findings of `convtune doctor`: what is wrong with the daemon, with the machine or container that
// it or a program runs on, and with the cuDNN that a program loads, and what to do about it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/cli/app/address_check.h"
#include "client/cli/app/program.h"
#include "convtune/v1/fleet_service.pb.h"
#include "convtune/v1/maintenance_service.pb.h"
#include "convtune/v1/release_service.pb.h"
#include "convtune/v1/tuning_service.pb.h"
#include "proto/cudnn/program_cudnn.h"

namespace convtune::cli::commands::doctor {

app::NewVerb NewDoctorCommand;

// Pure functions of what the daemon said.
app::Findings ExamineServer(const v1::ServerInfo& server, const std::string& own_version);
app::Findings ExamineDevices(const v1::ListDevicesResponse& devices);
app::Findings ExamineEnvironments(const v1::ListEnvironmentsResponse& environments);
app::Findings ExamineBans(const v1::ListBansResponse& bans);
app::Findings ExaminePublication(const v1::Publication& publication);

// The outcome of a try to use a file from this process.
struct SeenFile {
  std::string path;
  int error = 0;  // errno; 0: the try succeeded
  // "/var/lib/convtune has mode 0700": the file, or the first folder above it, that nobody but its
  // owner may read or pass. Looked for only where the user is root, whom no mode keeps out.
  // Empty: others may read the file, or nobody looked.
  std::string owner_only = "";
};

// Value type. What could not be found out is absent.
struct MachineFacts {
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
app::Findings ExamineDisk(const v1::ServerInfo& server, const MachineFacts& facts);
app::Findings ExamineClock(const v1::ServerInfo& server, const MachineFacts& facts);
app::Findings ExamineInterposer(const MachineFacts& facts);
// Driver, CUDA, cuDNN and its configuration of the environments that a device has.
app::Findings ExamineLibraries(const v1::ListEnvironmentsResponse& environments);
app::Findings ExamineFleet(const v1::FleetState& state);

// Pure. Without `environments` (the daemon did not give them) nothing is said of them.
app::Findings ExamineProgram(const std::string& program, const std::vector<LoadedCudnn>& found,
                             const v1::ListEnvironmentsResponse* environments);

// For `doctor --report`, whose findings can stand in a public issue: `text` with PATH, ADDRESS,
// UUID or NAME in the place of absolute paths, of addresses of sockets and hosts, of GPUs' UUIDs
// and of each of `secrets`, and of the host in each that is an address, with and without its
// domain.
std::string Redact(std::string text, std::vector<std::string> secrets);

}  // namespace convtune::cli::commands::doctor
