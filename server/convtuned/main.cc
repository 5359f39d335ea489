// convtuned: finds the fastest cuDNN algorithm for a convolution once, keeps
// it, and answers it.
//
// This folder is the daemon's main: settings, log, probe, start and end. It may
// include all of server but worker; nobody includes it.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "db/layered_tunings.h"
#include "db/store/backups.h"
#include "db/store/sqlite_store.h"
#include "proto/base/clock.h"
#include "proto/base/default_paths.h"
#include "proto/base/status_macros.h"
#include "proto/base/systemd.h"
#include "proto/model/tuning/ban.h"
#include "proto/monitoring/log.h"
#include "server/convtuned/flags.h"
#include "server/convtuned/gpu_watchers.h"
#include "server/convtuned/once.h"
#include "server/convtuned/probe.h"
#include "server/convtuned/signals.h"
#include "server/metrics/families.h"
#include "server/rpc/server.h"
#include "server/rpc/services/request_log.h"
#include "server/tuner/tuner.h"

namespace convtune::convtuned {
namespace {

constexpr absl::Duration kSignalPoll = absl::Hours(1);
// Of the longest graceful shutdown, what running tunings get; the rest is for calls to
// end and for the store.
constexpr double kDrainShare = 0.6;
constexpr double kShutdownShare = 0.9;
// What is left by then is answers on their way, and connections of clients
// that are idle and so do not see that they should close them.
constexpr absl::Duration kCallGrace = absl::Seconds(1);

absl::StatusOr<std::unique_ptr<db::store::SqliteStore>> OpenStore(const Flags& flags,
                                                                  const Clock* clock,
                                                                  std::string damage = "") {
  std::error_code error;
  const std::filesystem::path dir = std::filesystem::absolute(flags.state_dir, error);
  std::filesystem::create_directories(dir.parent_path(), error);
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat("--state-dir: ", dir.parent_path().string(), ": ", error.message()));
  }
  db::store::SqliteStore::Options options;
  options.state_dir = dir.string();
  options.clock = clock;
  options.allow_network_fs = flags.allow_network_fs;
  options.max_bytes = flags.max_db_bytes;
  options.damage = std::move(damage);
  options.notice = [](const std::string& text) { log::Warn("database: $0", text); };
  return db::store::SqliteStore::Open(std::move(options));
}

// What devices there are, with each cuDNN that was asked for.
ProbeResult Probe(const Flags& flags, ProbeOptions options, StopSignals* signals) {
  options.worker = flags.worker;
  options.devices = flags.devices;
  options.stop = [signals] { return signals->stopped(); };
  ProbeResult result;
  if (flags.cudnn_of.empty()) ProbeDevices(options, &result);
  for (const std::string& program : flags.cudnn_of) {
    absl::StatusOr<CudnnToLoad> cudnn = FindCudnnToLoad("--cudnn-of", program);
    if (!cudnn.ok()) {
      result.left_out.push_back({std::string(cudnn.status().message()), /*named=*/true});
      continue;
    }
    log::Info("$0: the cuDNN of $1", program, cudnn->folder);
    options.cudnn = *std::move(cudnn);
    ProbeDevices(options, &result);
  }
  return result;
}

// `anew`: the daemon serves already, and does without what is missing.
absl::StatusOr<ProbeResult> FindDevices(const Flags& flags, bool anew, StopSignals* signals) {
  ProbeOptions options;
  options.worker_named = flags.worker != DefaultWorkerPath() || !flags.cudnn_of.empty();
  options.node = flags.node;
  for (const std::string& profile : flags.profiles) {
    ASSIGN_OR_RETURN(std::string file, FindProfile(profile));
    options.profiles.push_back(std::move(file));
  }
  ProbeResult result = Probe(flags, std::move(options), signals);
  for (const LeftOut& one : result.left_out) {
    if (one.named && !flags.allow_missing_devices && !anew && !signals->stopped()) {
      return absl::FailedPreconditionError(
          absl::StrCat(one.what, " (--allow-missing-devices starts without it)"));
    }
    log::Warn("left out: $0", one.what);
  }
  for (const devices::DeviceSpec& device : result.devices) {
    log::Info("device $0: $1", device.name, device.environment.ToText());
  }
  if (result.devices.empty()) {
    log::Warn("no device to tune on: serving what the database has$0",
              result.left_out.empty() && flags.devices == "all"
                  ? absl::StrCat(" (", flags.worker, " found no GPU)")
                  : "");
  }
  return result;
}

absl::StatusOr<std::vector<std::string>> ReadBundleKeys(const Flags& flags) {
  std::vector<std::string> keys;
  for (const std::string& path : flags.bundle_keys) {
    absl::StatusOr<std::string> key = db::bundle::ReadBundlePublicKey(path);
    if (!key.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--bundle-key: ", std::string(key.status().message())));
    }
    keys.push_back(*std::move(key));
  }
  return keys;
}

// The base bundles, which lie beneath the database.
absl::StatusOr<std::vector<std::unique_ptr<db::BundleLayer>>> OpenBases(
    const Flags& flags, const Clock* clock, const std::vector<std::string>& keys) {
  std::vector<std::unique_ptr<db::BundleLayer>> layers;
  for (const std::string& path : flags.bases) {
    absl::StatusOr<std::unique_ptr<db::BundleLayer>> layer = db::BundleLayer::Open(
        path, keys, clock->Now(), [](const std::string& text) { log::Warn("left out: $0", text); });
    if (!layer.ok()) {
      return absl::Status(layer.status().code(),
                          absl::StrCat("--base: ", std::string(layer.status().message())));
    }
    log::Info("base $0: $1 tunings", path, (*layer)->size());
    layers.push_back(*std::move(layer));
  }
  return layers;
}

bool HasGpu(const std::vector<devices::DeviceSpec>& devices) {
  return std::any_of(devices.begin(), devices.end(),
                     [](const devices::DeviceSpec& device) { return !device.environment.profile; });
}

// True if there is a GPU now, for a daemon that was started before it was there: before the
// driver's module, or while it was being partitioned. Runs the worker, as long as StartLimits
// allow, if there is a driver or a GPU was asked for by its number: most machines
// without a GPU have no driver, and looking for a driver is free.
bool GpuAppeared(const Flags& flags, StopSignals* signals) {
  const bool driver = access("/dev/nvidiactl", F_OK) == 0 ||
                      access("/proc/driver/nvidia", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
  if (flags.devices == "all" && !driver) return false;
  return HasGpu(Probe(flags, {}, signals).devices);
}

// At SIGHUP. All other settings stay as they were at the start.
void ReadSettingsAnew(const Flags& flags, rpc::Server* server) {
  if (const absl::Status tls = server->ReloadTls(); tls.ok()) {
    log::Info("SIGHUP: the TLS files are read anew");
  } else {
    log::Error("SIGHUP: the TLS files from before stay: $0", std::string(tls.message()));
  }
  const ParsedFlags parsed = ParseFlags(flags.args, /*read_tls=*/false);
  if (parsed.flags.has_value()) {
    log::SetLevel(parsed.flags->log_level);
    log::Info("SIGHUP: the log's level is $0", parsed.flags->log_level);
  } else {
    log::Error("SIGHUP: the log's level stays: $0",
               std::string(absl::StripAsciiWhitespace(parsed.text)));
  }
}

void LogBackup(tuner::Tuner* tuner, const absl::StatusOr<std::string>& copy) {
  if (!copy.ok()) {
    log::Error("backup: $0", std::string(copy.status().message()));
    return;
  }
  if (const int64_t missing = tuner->Stats().info.not_on_disk(); missing > 0) {
    log::Warn(
        "backup: wrote $0 without $1 results, which the disk does not take: they are in "
        "memory only (convtune export copies all)",
        *copy, missing);
  } else {
    log::Info("backup: wrote $0", *copy);
  }
}

// Until a signal comes, or a GPU where there was none: it is true then, and the
// daemon is to start anew.
absl::StatusOr<bool> Serve(const Flags& flags, db::store::SqliteStore* store, tuner::Tuner* tuner,
                           const Clock* clock, const std::vector<std::string>& bundle_keys,
                           devices::GpuHealth* gpus, const std::vector<LeftOut>& left_out,
                           bool wants_gpu, StopSignals* signals) {
  rpc::Server::Options options;
  options.listen = flags.listen;
  options.tls = flags.tls;
  options.roles = flags.roles;
  options.tuner = tuner;
  options.store = store;
  options.clock = clock;
  options.state_dir = flags.state_dir;
  options.node = flags.node;
  options.releases = tuner->releases();
  options.bundle_keys = bundle_keys;
  for (const LeftOut& one : left_out) options.left_out.push_back(one.what);
  db::store::Backups backups(
      {store, clock, flags.backup_dir, flags.backup_every, flags.backup_keep,
       [tuner](const absl::StatusOr<std::string>& copy) { LogBackup(tuner, copy); }});
  options.backups = &backups;
  if (MetricsBuilt()) options.metrics_url = "";
  std::unique_ptr<MetricsServer> metrics;
  if (!flags.metrics_address.empty()) {
    ASSIGN_OR_RETURN(metrics, MetricsServer::Create(
                                  flags.metrics_address,
                                  metrics::DaemonFamilies({tuner, store, clock, gpus, &backups})));
    options.metrics_url = metrics->url();
    log::Info("metrics at $0", metrics->url());
  }
  options.outbox = store;
  ASSIGN_OR_RETURN(const std::unique_ptr<rpc::Server> server, rpc::Server::Create(options));
  for (const std::string& address : server->addresses()) {
    log::Info("listening on $0", address);
  }
  // The health service says of "devices/NAME" whether that device has its GPU, of "devices" whether
  // all have. Liveness and readiness have nothing to do with it: what is known is answered without
  // a device.
  server->SetServing("devices", true);
  gpus->SetListener([&server](const std::string& device, bool lost, bool any_lost) {
    server->SetServing(absl::StrCat("devices/", device), !lost);
    server->SetServing("devices", !any_lost);
  });
  server->SetReady(true);
  signals->OnHangup([&flags, &server] { ReadSettingsAnew(flags, server.get()); });
  NotifySystemd("READY=1");
  // For a service that starts anew in process READY=1 is nothing new, and does
  // not count as a sign of life.
  TellWatchdog();
  const absl::Duration watchdog = WatchdogPeriod();
  bool appeared = false;
  SteadyTime next_look =
      wants_gpu ? SteadyTime::Now() + flags.probe_interval : SteadyTime::InfiniteFuture();
  while (!appeared &&
         !signals->WaitFor(std::clamp(next_look - SteadyTime::Now(), absl::ZeroDuration(),
                                      std::min(kSignalPoll, watchdog)))) {
    if (SteadyTime::Now() >= next_look) {
      appeared = GpuAppeared(flags, signals);
      next_look = SteadyTime::Now() + flags.probe_interval;
    }
    tuner->Stats();  // stands still where the tuner's locks do
    TellWatchdog();
  }
  if (appeared) {
    log::Info("there is a GPU now: starting anew");
  } else {
    log::Info("stopping");
    NotifySystemd("STOPPING=1");
  }
  // Nobody tells the watchdog meanwhile.
  const absl::Duration longest =
      appeared ? std::min(flags.drain_timeout, watchdog) : flags.drain_timeout;
  const SteadyTime start = SteadyTime::Now();
  signals->OnHangup(nullptr);
  backups.Stop();
  server->SetReady(false);
  gpus->SetListener(nullptr);
  // The tuner first: it calls every waiting caller back, so that their calls
  // end by themselves.
  tuner->Drain(start + longest * kDrainShare);
  server->Shutdown(std::min(start + longest * kShutdownShare, SteadyTime::Now() + kCallGrace));
  return appeared;
}

// The exit status; nothing if the daemon is to start anew. `anew`: it does so.
absl::StatusOr<std::optional<int>> Run(const Flags& flags, bool anew, StopSignals* signals) {
  // The first start has systemd's TimeoutStartSec, which is longer; the
  // watchdog's time would begin with the first word to it.
  const auto keep_alive = [anew] {
    if (anew) TellWatchdog();
  };
  keep_alive();
  const SystemClock clock;
  ASSIGN_OR_RETURN(const std::vector<std::string> bundle_keys, ReadBundleKeys(flags));
  ASSIGN_OR_RETURN(std::unique_ptr<db::store::SqliteStore> database, OpenStore(flags, &clock));
  ASSIGN_OR_RETURN(const std::vector<std::unique_ptr<db::BundleLayer>> bases,
                   OpenBases(flags, &clock, bundle_keys));
  keep_alive();
  ASSIGN_OR_RETURN(ProbeResult found, FindDevices(flags, anew, signals));
  keep_alive();
  const bool wants_gpu = flags.devices != "none" && !HasGpu(found.devices);
  devices::GpuHealth gpu_health;
  for (const devices::DeviceSpec& device : found.devices) gpu_health.Add(device.name);
  ASSIGN_OR_RETURN(const std::unique_ptr<GpuWatchers> watchers,
                   GpuWatchers::Start(flags.worker, found.devices, &gpu_health));
  tuner::Tuner::Options options;
  options.store = database.get();
  options.bases = bases;
  options.clock = &clock;
  options.devices = std::move(found.devices);
  if (!flags.no_errata) options.shipped_bans = ShippedBans();
  options.gpu_health = &gpu_health;
  static_cast<devices::WorkerLimits&>(options) = flags.limits;
  options.self_checks_path = (std::filesystem::absolute(flags.state_dir) / "self_checks").string();
  options.publish = flags.publish;
  options.publish.folder = (std::filesystem::absolute(flags.state_dir) / "snapshot").string();
  absl::StatusOr<std::unique_ptr<tuner::Tuner>> created = tuner::Tuner::Create(options);
  if (absl::IsDataLoss(created.status()) && !database->read_only()) {
    // Opening looks at a part of the file, reading it at nearly all.
    keep_alive();
    database.reset();
    ASSIGN_OR_RETURN(database, OpenStore(flags, &clock, std::string(created.status().message())));
    options.store = database.get();
    keep_alive();
    created = tuner::Tuner::Create(std::move(options));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<tuner::Tuner> tuner, std::move(created));
  std::optional<int> exit_status = 0;
  absl::StatusOr<bool> served = false;
  if (flags.once) {
    exit_status = RunOnce(tuner.get(), flags, signals);
    tuner->Drain(SteadyTime::Now());
    // The snapshot is what an init container is run for.
    if (!tuner->releases()->Status().error().empty()) exit_status = 1;
  } else if (!signals->stopped()) {
    served = Serve(flags, database.get(), tuner.get(), &clock, bundle_keys, &gpu_health,
                   found.left_out, wants_gpu, signals);
    if (served.ok() && *served) exit_status.reset();
  }
  tuner.reset();
  const absl::Status closed = database->Close();
  RETURN_IF_ERROR(served.status());
  RETURN_IF_ERROR(closed);
  return exit_status;
}

// Opens store and devices, then serves until a stop signal comes, and drains;
// or, with flags.once, tunes the lists and prints a summary to standard output.
// Returns the exit status: 0, or 1 with the reason in the log.
int RunDaemon(const Flags& flags, StopSignals* signals) {
  rpc::CaptureLibraryLogs();
  log::Info("convtuned $0, state in $1", CONVTUNE_VERSION, flags.state_dir);
  for (const std::string& warning : flags.warnings) log::Warn("$0", warning);
  for (bool anew = false;; anew = true) {
    const absl::StatusOr<std::optional<int>> result = Run(flags, anew, signals);
    if (!result.ok()) {
      log::Error("$0", std::string(result.status().message()));
      return 1;
    }
    if (result->has_value()) return **result;
  }
}

}  // namespace
}  // namespace convtune::convtuned

int main(int argc, char** argv) {
  try {
    const convtune::convtuned::ParsedFlags parsed =
        convtune::convtuned::ParseFlags(std::vector<std::string>(argv + 1, argv + argc));
    if (!parsed.flags.has_value()) {
      std::fputs(parsed.text.c_str(), parsed.exit_code == 0 ? stdout : stderr);
      return parsed.exit_code;
    }
    convtune::convtuned::StopSignals signals;
    convtune::log::Init(parsed.flags->json_log, parsed.flags->log_level,
                        convtune::rpc::services::CurrentRequestId);
    return convtune::convtuned::RunDaemon(*parsed.flags, &signals);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "convtuned: %s\n", e.what());
    return 1;
  }
}
