#include "server/convtuned/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <istream>
#include <memory>
#include <optional>
#include <type_traits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "proto/base/default_paths.h"
#include "proto/base/duration.h"
#include "proto/base/program_paths.h"
#include "proto/base/status_macros.h"
#include "proto/model/enums.h"
#include "proto/model/text.h"
#include "proto/monitoring/metrics_server.h"
#include "server/rpc/http2/access.h"
#include "server/rpc/http2/listen_address.h"
#include "server/rpc/http2/server_tls.h"

namespace convtune::convtuned {
namespace {

constexpr int kUsageError = 2;

// --help shows these in a group of their own, behind those that are set often.
constexpr char kSeldom[] = "Most people leave this alone";
constexpr const char* kSeldomSet[] = {"--worker",
                                      "--allow-missing-devices",
                                      "--node",
                                      "--idle-timeout",
                                      "--hang-timeout",
                                      "--probe-interval",
                                      "--drain-timeout",
                                      "--max-db-size",
                                      "--allow-network-fs",
                                      "--no-errata",
                                      "--log-format",
                                      "--wanted-budget",
                                      "--open-socket"};

std::string EnvironmentName(const std::string& flag) {
  return absl::StrCat("CONVTUNE_", absl::AsciiStrToUpper(absl::StrReplaceAll(flag, {{"-", "_"}})));
}

bool IsSetInEnvironment(const std::string& flag) {
  const char* value = std::getenv(EnvironmentName(flag).c_str());
  return value != nullptr && value[0] != '\0';
}

// CLI11 reads the environment only for options that the config file left
// alone. What the environment says is therefore dropped from the file.
class EnvironmentFirstConfig : public CLI::ConfigTOML {
 public:
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> found = CLI::ConfigTOML::from_config(input);
    found.erase(std::remove_if(found.begin(), found.end(),
                               [](const CLI::ConfigItem& item) {
                                 return item.parents.empty() && IsSetInEnvironment(item.name);
                               }),
                found.end());
    return found;
  }
};

// Texts that become other types once all is read.
struct Texts {
  std::string op, dtype, layout;
  int64_t batch = 0;
  std::string on = "tune";
  std::string log_format = "text";
  std::string publish_evidence = "observed";
};

std::string CheckDuration(const std::string& text) {
  const std::optional<absl::Duration> value = ParseDuration(text);
  if (!value || *value <= absl::ZeroDuration() || *value > absl::Hours(24 * 365)) {
    return "must be a time such as 500ms, 5m or 30d, more than 0 and at most a year";
  }
  return "";
}

std::string CheckIdleWait(const std::string& text) {
  const std::optional<absl::Duration> value = ParseDuration(text);
  const bool sound = value && *value >= absl::ZeroDuration() && *value <= absl::Hours(1);
  return sound ? "" : "must be a time such as 30s or 5m, at most 1h";
}

std::string CheckDevices(const std::string& text) {
  const bool numbers = !text.empty() && absl::ascii_isdigit(text.front()) &&
                       absl::ascii_isdigit(text.back()) && text.find(",,") == std::string::npos &&
                       text.find_first_not_of("0123456789,") == std::string::npos;
  return text == "all" || text == "none" || numbers
             ? ""
             : absl::StrCat("must be all, none or numbers with commas between, such as 0,1, is ",
                            text);
}

std::string CheckMetricsAddress(const std::string& text) {
  const absl::Status status = ValidateMetricsAddress(text);
  return status.ok() ? "" : std::string(status.message());
}

std::string CheckRole(const std::string& text) {
  const absl::Status status = rpc::http2::CertificateRoles::Parse({text}).status();
  return status.ok() ? "" : std::string(status.message());
}

std::string CheckNode(const std::string& text) { return text.empty() ? "" : CheckNodeName(text); }

// The default is what `*value` has. A bool is a flag; a list may have commas between.
template <typename T>
CLI::Option* Add(CLI::App* app, const std::string& name, T* value, const std::string& help) {
  CLI::Option* option = nullptr;
  if constexpr (std::is_same_v<T, bool>) {
    option = app->add_flag("--" + name, *value, help);
  } else {
    option = app->add_option("--" + name, *value, help)->capture_default_str();
  }
  if constexpr (std::is_same_v<T, std::vector<std::string>>) option->delimiter(',');
  return option->envname(EnvironmentName(name));
}

// The default is what `*value` has.
CLI::Option* AddTime(CLI::App* app, const std::string& name, absl::Duration* value,
                     const std::string& help,
                     std::string (*check)(const std::string&) = CheckDuration) {
  const auto read = [value](const std::string& text) {
    *value = ParseDuration(text).value_or(*value);
  };
  return app->add_option_function<std::string>("--" + name, read, help)
      ->default_str(absl::FormatDuration(*value))
      ->check(check)
      ->envname(EnvironmentName(name));
}

void AddServing(CLI::App* app, Flags* flags, Texts* texts) {
  const auto add = [app](const std::string& name, auto* value, const std::string& help) {
    return Add(app, name, value, help);
  };
  add("state-dir", &flags->state_dir, "Directory of the database and its lock");
  add("listen", &flags->listen,
      "unix:PATH or admin=unix:PATH (mode 0660; who can connect is an admin), tune=unix:PATH "
      "(0660), read=unix:PATH (0666) or HOST:PORT (with TLS); repeatable");
  add("devices", &flags->devices, "GPUs to tune on: all, none, or numbers such as 0,1")
      ->check(CheckDevices);
  add("profile", &flags->profiles,
      "Device profile that stands in for a GPU: a name or a file; repeatable");
  add("cudnn-of", &flags->cudnn_of,
      "Tune with the cuDNN that this loads: a Python, the folder of a venv or of libcudnn.so.9, or "
      "a program (default: the worker's own); repeatable");
  add("worker", &flags->worker, "The program convtune-worker");
  add("allow-missing-devices", &flags->allow_missing_devices,
      "Start without a profile, a numbered GPU, a cuDNN or a worker "
      "program that was asked for and cannot be used");
  add("base", &flags->bases, "Bundle to serve beneath the database, read-only; repeatable");
  add("bundle-key", &flags->bundle_keys,
      "PEM file: an Ed25519 public key, one of which must have signed every bundle; repeatable");
  add("node", &flags->node, "Name of this node in results and reports; empty: the host's name")
      ->check(CheckNode);
  AddTime(app, "idle-timeout", &flags->idle_timeout,
          "End a worker that has had no work for this long");
  AddTime(
      app, "hang-timeout", &flags->hang_timeout,
      "Kill a worker that is silent for this long at a candidate, or beyond a listing's budget");
  AddTime(app, "probe-interval", &flags->probe_interval,
          "Time between looks for a GPU while there is none");
  AddTime(app, "drain-timeout", &flags->drain_timeout, "Longest graceful shutdown after SIGTERM");
  add("tls-cert", &flags->tls.cert, "PEM file: the server's certificate chain");
  add("tls-key", &flags->tls.key, "PEM file: the server's private key");
  add("tls-client-ca", &flags->tls.client_ca, "PEM file: CAs that may sign client certificates");
  add("role", &flags->roles,
      "ROLE=cert:IDENTITY: read, tune or admin to a client's certificate; * is every one; "
      "repeatable")
      ->check(CheckRole);
  add("metrics-address", &flags->metrics_address,
      MetricsBuilt() ? "IP:PORT to serve Prometheus metrics at, over plain HTTP; empty: none"
                     : "Not in this build, which was made without prometheus-cpp")
      ->check(CheckMetricsAddress);
  add("max-db-size", &flags->max_db_bytes, "Soft limit of the database, such as 1GiB; 0: none")
      ->transform(CLI::AsSizeValue(true))
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 50));
  add("backup-dir", &flags->backup_dir,
      "Folder of the database's copies; empty: backup in the state directory");
  AddTime(app, "backup-every", &flags->backup_every,
          "Time from one copy of the database to the next, such as 6h; without it copies are made "
          "by `convtune db backup` alone")
      ->default_str("");
  add("backup-keep", &flags->backup_keep,
      "Copies to keep; a new one deletes the oldest of those that are named by their time")
      ->check(CLI::Range(1, 10'000));
  add("allow-network-fs", &flags->allow_network_fs,
      "Accept a state directory on a network file system");
  add("no-errata", &flags->no_errata,
      "Leave out the bans that come with convtune, of engines known to be wrong");
  add("log-format", &texts->log_format, "text or json")->check(CLI::IsMember({"text", "json"}));
  add("log-level", &flags->log_level, "debug, info, warn or error")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
}

void AddPublishing(CLI::App* app, Flags* flags, Texts* texts) {
  const auto add = [app](const std::string& name, auto* value, const std::string& help) {
    return Add(app, name, value, help);
  };
  add("publish-evidence", &texts->publish_evidence,
      "Least evidence that unmodified programs are served")
      ->check(CLI::IsMember({"heuristic", "observed", "incomplete", "measured"}));
  add("auto-promote", &flags->publish.auto_promote,
      "Serve a changed choice at once instead of at `convtune release promote`");
  add("tune-wanted", &flags->publish.tune_wanted,
      "Tune what programs miss, most wanted first, while no caller waits");
  AddTime(app, "wanted-budget", &flags->publish.wanted_budget,
          "Time for one problem of --tune-wanted");
  add("open-socket", &flags->publish.open_to_all,
      "Let every user report misses and plans, not the daemon's group alone");
}

constexpr char kByItself[] = "With --once and --tune-wanted";

void AddOnce(CLI::App* app, Flags* flags, Texts* texts) {
  const auto add = [app](const std::string& name, auto* value, const std::string& help) {
    return Add(app, name, value, help)->group("With --once")->default_str("");
  };
  Add(app, "once", &flags->once, "Tune what is missing of --file, print a summary and exit");
  add("file", &flags->files, "List of problems; repeatable");
  add("op", &texts->op, "Operation of every problem")->check(CLI::IsMember(OperationNames()));
  add("dtype", &texts->dtype, "Data type of every problem")->check(CLI::IsMember(InputTypeNames()));
  add("layout", &texts->layout, "Layout of every problem")->check(CLI::IsMember({"nchw", "nhwc"}));
  add("batch", &texts->batch, "Batch size of every problem")->check(CLI::Range(1, 1 << 30));
  add("on", &texts->on, "How to fill missing entries: tune or heuristic")
      ->capture_default_str()
      ->check(CLI::IsMember({"tune", "heuristic"}));
  AddTime(app, "time-budget", &flags->time_budget, "Time for one problem")->group("With --once");
  add("memory-budget", &flags->memory_budget_bytes,
      "GPU memory for tensors, workspace and flushing caches, such as 2GiB, beside what CUDA's "
      "context and cuDNN take; 0: all that is free")
      ->group(kByItself)
      ->transform(CLI::AsSizeValue(true))
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 50));
  AddTime(app, "wait-idle", &flags->wait_idle,
          "Wait up to this long, at most 1h, for a GPU that no other process uses; with "
          "--tune-wanted other tunings wait behind it",
          CheckIdleWait)
      ->group(kByItself)
      ->default_str("");
}

void Finish(const Texts& texts, Flags* flags) {
  flags->publish.wanted_memory_budget_bytes = flags->memory_budget_bytes;
  flags->publish.wanted_wait_idle = flags->wait_idle;
  flags->publish.floor = ParseEvidence(texts.publish_evidence).value_or(Evidence::kObserved);
  flags->json_log = texts.log_format == "json";
  flags->on_miss = texts.on == "heuristic" ? jobs::OnMiss::kHeuristic : jobs::OnMiss::kTune;
  flags->overrides.operation = ParseOperation(texts.op);
  flags->overrides.data_type = ParseDataType(texts.dtype);
  if (!texts.layout.empty()) {
    flags->overrides.layout = texts.layout == "nhwc" ? TensorLayout::kNhwc : TensorLayout::kNchw;
  }
  if (texts.batch > 0) {
    flags->overrides.batches = {texts.batch};
  }
  if (flags->backup_dir.empty()) flags->backup_dir = flags->state_dir + "/backup";
  flags->backup_dir = std::filesystem::absolute(flags->backup_dir).lexically_normal().string();
  if (flags->backup_dir.size() > 1 && flags->backup_dir.ends_with('/')) {
    flags->backup_dir.pop_back();
  }
  if (flags->listen.empty()) {
    flags->listen.push_back("unix:" + DefaultSocketPath());
  }
}

ParsedFlags UsageError(const std::string& what) {
  ParsedFlags parsed;
  parsed.text = absl::StrCat("convtuned: ", what, "\nRun convtuned --help for the flags.\n");
  parsed.exit_code = kUsageError;
  return parsed;
}

// What the server will need is looked at before anything is opened: a daemon
// that cannot listen must not have brought the database to a newer schema.
absl::Status CheckListening(const Flags& flags, bool read_tls) {
  if (flags.once) return absl::OkStatus();
  bool over_tcp = false;
  for (const std::string& text : flags.listen) {
    ASSIGN_OR_RETURN(const rpc::http2::ListenAddress address,
                     rpc::http2::ListenAddress::Parse(text));
    over_tcp = over_tcp || !address.unix_socket;
  }
  if (over_tcp) {
    return read_tls ? rpc::http2::ReadTlsFiles(flags.tls).status() : absl::OkStatus();
  }
  if (flags.tls.cert.empty() && flags.tls.key.empty() && flags.tls.client_ca.empty()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "--tls-cert, --tls-key and --tls-client-ca are for HOST:PORT, of which --listen has none");
}

}  // namespace

ParsedFlags ParseFlags(const std::vector<std::string>& args, bool read_tls) {
  Flags flags;
  Texts texts;
  flags.state_dir = DefaultStateDir();
  flags.worker = DefaultWorkerPath();
  CLI::App app(
      "Finds the fastest cuDNN algorithm for a convolution once, keeps it, and answers it.\n"
      "Settings come from flags, then from CONVTUNE_* variables, then from the config file.",
      "convtuned");
  app.set_version_flag("--version", absl::StrCat("convtuned ", CONVTUNE_VERSION));
  app.config_formatter(std::make_shared<EnvironmentFirstConfig>());
  app.allow_config_extras(CLI::config_extras_mode::error);
  // Not CONVTUNE_CONFIG, which is the command line's file, with other keys.
  const char* config = std::getenv("CONVTUNED_CONFIG");
  const std::string config_path = config == nullptr ? "" : config;
  app.set_config("--config", config_path, "File of settings (TOML)", !config_path.empty());
  AddServing(&app, &flags, &texts);
  AddPublishing(&app, &flags, &texts);
  for (const char* flag : kSeldomSet) app.get_option(flag)->group(kSeldom);
  AddOnce(&app, &flags, &texts);
  ParsedFlags parsed;
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
    if (flags.once && flags.files.empty()) {
      throw CLI::ValidationError("--once", "needs --file");
    }
    if (!flags.once && !flags.files.empty()) {
      throw CLI::ValidationError("--file", "is for --once");
    }
  } catch (const CLI::CallForHelp&) {
    parsed.text = app.help();
    return parsed;
  } catch (const CLI::CallForVersion& e) {
    parsed.text = absl::StrCat(e.what(), "\n");
    return parsed;
  } catch (const CLI::ConfigError& e) {
    const std::string file = app.get_config_ptr()->as<std::string>();
    return UsageError(absl::StrCat(
        file, ": ",
        absl::StrReplaceAll(e.what(), {{"INI was not able to parse", "no such setting:"}})));
  } catch (const CLI::Error& e) {
    return UsageError(e.what());
  }
  Finish(texts, &flags);
  if (const absl::Status status = CheckListening(flags, read_tls); !status.ok()) {
    return UsageError(std::string(status.message()));
  }
  flags.args = args;
  parsed.flags = std::move(flags);
  return parsed;
}

}  // namespace convtune::convtuned
