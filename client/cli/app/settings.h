// Settings say where the daemon is and how long to wait for it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/output/io.h"
#include "client/cpp/client.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace convtune::cli::app {

// The group of the options that all commands have; the root of the tree has
// them, so that they may stand before the command and behind it.
inline constexpr char kCommonOptions[] = "Common options";
// Returns these options of the tree that `app` is in.
std::vector<const CLI::Option*> CommonOptionsOf(const CLI::App& app);

// The settings of the command line by name, "tls_ca" for --tls-ca, and "config".
// Settings::Resolve takes an absent one from elsewhere.
using SettingFlags = std::map<std::string, std::string>;

// Adds --address, --environment, --timeout, --tls-ca, --tls-cert, --tls-key and --config to `app`,
// which set `flags`.
void RegisterSettings(CLI::App& app, SettingFlags* flags);

// Value type.
struct Settings {
  client::Client::Options client;
  std::string environment;  // empty: the daemon's only one
  // Set if somebody chose client.timeout: then it also bounds calls that wait
  // for a worker.
  std::optional<absl::Duration> timeout;

  // Flags, then CONVTUNE_* variables, then the config file, then defaults. The
  // file is --config, else CONVTUNE_CONFIG, else convtune/config.toml below
  // $XDG_CONFIG_HOME (~/.config), which need not exist. INVALID_ARGUMENT names
  // the setting, where it was set, and the rule.
  static absl::StatusOr<Settings> Resolve(const SettingFlags& flags, const output::Io& io);
};

}  // namespace convtune::cli::app
