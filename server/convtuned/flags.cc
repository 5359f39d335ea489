#include "server/convtuned/flags.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <istream>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "proto/base/clock.h"
#include "proto/base/default_paths.h"
#include "proto/base/status_macros.h"
#include "proto/base/variables.h"
#include "proto/model/enums.h"
#include "proto/model/text.h"
#include "proto/monitoring/metrics_server.h"
#include "server/rpc/http2/access.h"
#include "server/rpc/http2/listen_address.h"
#include "server/rpc/http2/server_tls.h"

namespace convtune::convtuned {
namespace {

constexpr int kUsageError = 2;

// --help shows these in groups of their own, behind those that are set often.
constexpr std::pair<const char*, const char*> kGroups[] = {
    {"Most people leave this alone",
     "--worker --allow-missing-devices --node --idle-timeout --hang-timeout --probe-interval "
     "--drain-timeout --max-db-size --allow-network-fs --no-errata --log-format --wanted-budget "
     "--open-socket"},
    {"With --once", "--file --op --dtype --layout --batch --on --time-budget"},
    {"With --once and --tune-wanted", "--memory-budget --wait-idle"}};

std::string EnvironmentName(const std::string& flag) {
  return absl::StrCat("CONVTUNE_", absl::AsciiStrToUpper(absl::StrReplaceAll(flag, {{"-", "_"}})));
}

// CLI11 reads the environment only for options that the config file left
// alone. What the environment says is therefore dropped from the file.
class EnvironmentFirstConfig : public CLI::ConfigTOML {
 public:
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> found = CLI::ConfigTOML::from_config(input);
    for (const CLI::ConfigItem& item : found) {
      if (item.parents.empty()) continue;
      throw CLI::ConfigError(absl::StrCat("there are no sections, such as [", item.parents.front(),
                                          "], and no dots in names: NAME = VALUE alone"));
    }
    std::erase_if(found, [](const CLI::ConfigItem& item) {
      const char* const value = std::getenv(EnvironmentName(item.name).c_str());
      return item.parents.empty() && value != nullptr && *value != '\0';
    });
    return found;
  }
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

// CLI11 takes a number with a zero in front for an octal one.
std::string WithoutZeros(std::string text) {
  while (text.size() > 1 && text[0] == '0' && absl::ascii_isdigit(text[1])) text.erase(0, 1);
  return text;
}

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

// `read` takes the value.
template <typename T>
CLI::Option* AddRead(CLI::App* app, const std::string& name, const std::string& help,
                     const std::function<void(const T&)>& read) {
  return app->add_option_function<T>("--" + name, read, help)->envname(EnvironmentName(name));
}

CLI::Option* AddWord(CLI::App* app, const std::string& name, const std::string& help,
                     const std::vector<std::string>& words,
                     const std::function<void(const std::string&)>& read) {
  return AddRead<std::string>(app, name, help, read)->check(CLI::IsMember(words));
}

// The default is what `*value` has.
CLI::Option* AddTime(CLI::App* app, const std::string& name, absl::Duration* value,
                     const std::string& help,
                     std::string (*check)(const std::string&) = CheckDuration) {
  const auto read = [value](const std::string& text) {
    *value = ParseDuration(text).value_or(*value);
  };
  return AddRead<std::string>(app, name, help, read)
      ->default_str(absl::FormatDuration(*value))
      ->check(check);
}

void AddSettings(CLI::App* app, Flags* flags) {
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
      ->check([](const std::string& text) { return text.empty() ? "" : CheckNodeName(text); });
  AddTime(app, "idle-timeout", &flags->limits.idle_timeout,
          "End a worker that has had no work for this long");
  AddTime(
      app, "hang-timeout", &flags->limits.hang_timeout,
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
      ->check([](const std::string& text) {
        return std::string(rpc::http2::CertificateRoles::Parse({text}).status().message());
      });
  add("metrics-address", &flags->metrics_address,
      MetricsBuilt() ? "IP:PORT to serve Prometheus metrics at, over plain HTTP; empty: none"
                     : "Not in this build, which was made without prometheus-cpp")
      ->check([](const std::string& text) {
        return std::string(ValidateMetricsAddress(text).message());
      });
  add("max-db-size", &flags->max_db_bytes, "Soft limit of the database, such as 1GiB; 0: none")
      ->transform(CLI::AsSizeValue(true))
      ->transform(WithoutZeros)
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 50));
  add("backup-dir", &flags->backup_dir,
      "Folder of the database's copies; empty: backup in the state directory");
  AddTime(app, "backup-every", &flags->backup_every,
          "Time from one copy of the database to the next, such as 6h; without it copies are made "
          "by `convtune db backup` alone")
      ->default_str("");
  add("backup-keep", &flags->backup_keep,
      "Copies to keep; a new one deletes the oldest of those that are named by their time")
      ->transform(WithoutZeros)
      ->check(CLI::Range(1, 10'000));
  add("allow-network-fs", &flags->allow_network_fs,
      "Accept a state directory on a network file system");
  add("no-errata", &flags->no_errata,
      "Leave out the bans that come with convtune, of engines known to be wrong");
  AddWord(app, "log-format", "text or json", {"text", "json"}, [flags](const std::string& text) {
    flags->json_log = text == "json";
  })->default_str("text");
  add("log-level", &flags->log_level, "debug, info, warn or error")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
  AddWord(app, "publish-evidence", "Least evidence that unmodified programs are served",
          {"heuristic", "observed", "incomplete", "measured"},
          [flags](const std::string& text) { flags->publish.floor = *ParseEvidence(text); })
      ->default_str("observed");
  add("auto-promote", &flags->publish.auto_promote,
      "Serve a changed choice at once instead of at `convtune release promote`");
  add("tune-wanted", &flags->publish.tune_wanted,
      "Tune what programs miss, most wanted first, while no caller waits");
  AddTime(app, "wanted-budget", &flags->publish.wanted_budget,
          "Time for one problem of --tune-wanted");
  add("open-socket", &flags->publish.open_to_all,
      "Let every user report misses and plans, not the daemon's group alone");
}

void AddOnce(CLI::App* app, Flags* flags) {
  ProblemOverrides* const all = &flags->overrides;
  Add(app, "once", &flags->once, "Tune what is missing of --file, print a summary and exit");
  Add(app, "file", &flags->files, "List of problems; repeatable")->default_str("");
  AddWord(app, "op", "Operation of every problem", OperationNames(),
          [all](const std::string& text) { all->operation = ParseOperation(text); });
  AddWord(app, "dtype", "Data type of every problem", InputTypeNames(),
          [all](const std::string& text) { all->data_type = ParseDataType(text); });
  AddWord(app, "layout", "Layout of every problem", {"nchw", "nhwc"},
          [all](const std::string& text) {
            all->layout = text == "nhwc" ? TensorLayout::kNhwc : TensorLayout::kNchw;
          });
  AddRead<int64_t>(app, "batch", "Batch size of every problem",
                   [all](int64_t batch) { all->batches = {batch}; })
      ->transform(WithoutZeros)
      ->check(CLI::Range(1, 1 << 30));
  AddWord(app, "on", "How to fill missing entries: tune or heuristic", {"tune", "heuristic"},
          [flags](const std::string& text) {
            flags->on_miss = text == "tune" ? jobs::OnMiss::kTune : jobs::OnMiss::kHeuristic;
          })
      ->default_str("tune");
  AddTime(app, "time-budget", &flags->time_budget, "Time for one problem");
  Add(app, "memory-budget", &flags->publish.wanted_memory_budget_bytes,
      "GPU memory for tensors, workspace and flushing caches, such as 2GiB, beside what CUDA's "
      "context and cuDNN take; 0: all that is free")
      ->default_str("")
      ->transform(CLI::AsSizeValue(true))
      ->transform(WithoutZeros)
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 50));
  AddTime(app, "wait-idle", &flags->publish.wanted_wait_idle,
          "Wait up to this long, at most 1h, for a GPU that no other process uses; with "
          "--tune-wanted other tunings wait behind it",
          CheckIdleWait)
      ->default_str("");
}

void Finish(Flags* flags) {
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
  AddSettings(&app, &flags);
  AddOnce(&app, &flags);
  for (const auto& [group, names] : kGroups) {
    for (const absl::string_view name : absl::StrSplit(names, ' ')) {
      app.get_option(std::string(name))->group(group);
    }
  }
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
  Finish(&flags);
  if (const absl::Status status = CheckListening(flags, read_tls); !status.ok()) {
    return UsageError(std::string(status.message()));
  }
  flags.warnings = UnknownVariables();
  if (const char* const other = std::getenv("CONVTUNE_CONFIG");
      other != nullptr && *other != '\0' && app.get_config_ptr()->empty()) {
    flags.warnings.emplace_back(
        "CONVTUNE_CONFIG: is the command line's file; the daemon's is CONVTUNED_CONFIG");
  }
  flags.args = args;
  parsed.flags = std::move(flags);
  return parsed;
}

}  // namespace convtune::convtuned
