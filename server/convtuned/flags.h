// Flags are the daemon's settings: from flags, then the environment (CONVTUNE_*),
// then the config file, then defaults.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/convert/problem_list.h"
#include "server/rpc/server.h"
#include "server/tuner/tuner.h"

namespace convtune::convtuned {

// Value type; every field has its default.
struct Flags {
  std::string state_dir;
  std::vector<std::string> listen;
  std::string devices = "all";           // "all", "none" or "0,1"
  std::vector<std::string> profiles;     // names or files
  std::string worker;                    // program
  std::vector<std::string> cudnn_of;     // whose cuDNN workers load; none: their own
  bool allow_missing_devices = false;    // also those that were asked for by name
  std::vector<std::string> bases;        // bundles beneath the database
  std::vector<std::string> bundle_keys;  // PEM files
  std::string node;                      // this node's name in results; empty: the host's name

  bool once = false;
  std::vector<std::string> files;
  ProblemOverrides overrides;
  jobs::OnMiss on_miss = jobs::OnMiss::kTune;
  absl::Duration time_budget = absl::Seconds(30);

  devices::WorkerLimits limits;
  absl::Duration probe_interval = absl::Minutes(1);
  absl::Duration drain_timeout = absl::Seconds(10);
  bool allow_network_fs = false;
  bool no_errata = false;
  int64_t max_db_bytes = 0;                            // 0: no limit
  std::string backup_dir;                              // absolute
  absl::Duration backup_every = absl::ZeroDuration();  // 0: on request alone
  int backup_keep = 8;
  // `folder` is not set here: it is in the state directory. The memory budget and the wait for an
  // idle GPU are also those of `once`.
  release::PublishOptions publish;
  rpc::http2::ServerTlsFiles tls;
  std::vector<std::string> roles;  // as CertificateRoles::Parse takes them
  std::string metrics_address;     // IP:PORT; empty: none
  bool json_log = false;
  std::string log_level = "info";
  std::vector<std::string> warnings;  // of variables that have no effect
  std::vector<std::string> args;      // as ParseFlags got them, for SIGHUP to read anew
};

struct ParsedFlags {
  std::optional<Flags> flags;  // absent: print `text` and exit
  std::string text;            // help, version, or what is wrong
  int exit_code = 0;           // 0 after help and version, 2 otherwise
};

// `args` without the program's name. Unknown flags and unknown keys of the
// config file are errors. Reads the environment: not to be called while another
// thread changes it.
//
// `read_tls`: also the files of TLS, which a daemon needs to start. At SIGHUP they
// are read apart, and must not decide about the log's level.
ParsedFlags ParseFlags(const std::vector<std::string>& args, bool read_tls = true);

}  // namespace convtune::convtuned
