#include "client/cli/app/settings.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/cli/output/units.h"
#include "proto/base/default_paths.h"
#include "proto/base/errors.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::app {
namespace {

struct Setting {
  std::string name, type, description;
};
const Setting kSettings[] = {
    {"address", "ADDRESS", "unix:PATH or HOST:PORT of the daemon"},
    {"environment", "NAME|TEXT", "name or text of the environment, where there are several"},
    {"timeout", "TIME", "longest wait for an answer, such as 10s"},
    {"tls_ca", "FILE", "PEM file that the daemon's certificate is checked against"},
    {"tls_cert", "FILE", "PEM file with the client's certificate"},
    {"tls_key", "FILE", "PEM file with the client's private key"}};

struct Value {
  std::string text;
  std::string where;  // as in messages: "--timeout", "CONVTUNE_TIMEOUT", "FILE: timeout"
};

std::string FlagOf(const std::string& name) {
  return absl::StrCat("--", absl::StrReplaceAll(name, {{"_", "-"}}));
}

std::string VariableOf(const std::string& name) {
  return absl::StrCat("CONVTUNE_", absl::AsciiStrToUpper(name));
}

absl::StatusOr<std::map<std::string, std::string>> ReadConfig(const std::string& path) {
  std::map<std::string, std::string> values;
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_file(path);
  } catch (const CLI::Error&) {
    return InvalidArgument("config: must be a readable TOML file, but ", path, " is not");
  }
  for (const CLI::ConfigItem& item : items) {
    if (!item.parents.empty()) {
      return InvalidArgument(path, ": there are no sections, such as [", item.parents.front(),
                             "], and no dots in ", "names: NAME = VALUE alone");
    }
    if (std::ranges::count(kSettings, item.name, &Setting::name) == 0) {
      return InvalidArgument(path, ": ", item.name, ": no such setting; there are address, ",
                             "environment, timeout, tls_ca, tls_cert and tls_key");
    }
    if (item.inputs.size() != 1) {
      return InvalidArgument(path, ": ", item.name, ": must have one value");
    }
    values[item.name] = item.inputs[0];
  }
  return values;
}

// The file to read; empty if there is none.
absl::StatusOr<std::string> ConfigPath(const SettingFlags& flags, const output::Io& io) {
  const auto flag = flags.find("config");
  std::string path = flag != flags.end() ? flag->second : io.env("CONVTUNE_CONFIG").value_or("");
  std::error_code error;
  if (!path.empty()) {
    if (!std::filesystem::is_regular_file(path, error)) {
      return InvalidArgument("config: must name a file, but '", path, "' is not a file");
    }
    return path;
  }
  std::string folder = io.env("XDG_CONFIG_HOME").value_or("");
  const std::string home = io.env("HOME").value_or("");
  if (folder.empty() && !home.empty()) folder = home + "/.config";
  if (folder.empty()) return "";
  path = folder + "/convtune/config.toml";
  return std::filesystem::is_regular_file(path, error) ? path : "";
}

}  // namespace

std::vector<const CLI::Option*> CommonOptionsOf(const CLI::App& app) {
  const CLI::App* root = &app;
  while (root->get_parent() != nullptr) root = root->get_parent();
  return root->get_options(
      [](const CLI::Option* option) { return option->get_group() == kCommonOptions; });
}

void RegisterSettings(CLI::App& app, SettingFlags* flags) {
  const auto add = [&](const Setting& setting) {
    app.add_option_function<std::string>(
           FlagOf(setting.name),
           [flags, name = setting.name](const std::string& text) { (*flags)[name] = text; },
           setting.description)
        ->type_name(setting.type)
        ->group(kCommonOptions);
  };
  for (const Setting& setting : kSettings) add(setting);
  add({"config", "FILE", "file of settings in TOML"});
}

absl::StatusOr<Settings> Settings::Resolve(const SettingFlags& flags, const output::Io& io) {
  ASSIGN_OR_RETURN(const std::string path, ConfigPath(flags, io));
  std::map<std::string, std::string> file;
  if (!path.empty()) {
    ASSIGN_OR_RETURN(file, ReadConfig(path));
  }
  std::map<std::string, Value> values;
  for (const auto& [name, type, description] : kSettings) {
    if (const auto flag = flags.find(name); flag != flags.end()) {
      values[name] = {flag->second, FlagOf(name)};
    } else if (const auto variable = io.env(VariableOf(name)); !variable.value_or("").empty()) {
      values[name] = {*variable, VariableOf(name)};
    } else if (const auto it = file.find(name); it != file.end()) {
      values[name] = {it->second, absl::StrCat(path, ": ", name)};
    }
  }

  Settings settings;
  settings.environment = values["environment"].text;
  settings.client.tls = {values["tls_ca"].text, values["tls_cert"].text, values["tls_key"].text};
  if (values.count("address") == 0) {
    settings.client.address.unix_socket = true;
    settings.client.address.target = FirstSocket(ClientSocketPaths());
  } else {
    const Value& value = values["address"];
    ASSIGN_OR_RETURN(settings.client.address, Address::Parse(value.text, value.where));
  }
  if (values.count("timeout") > 0) {
    const Value& value = values["timeout"];
    ASSIGN_OR_RETURN(const absl::Duration timeout, output::ParseTime(value.where, value.text));
    settings.timeout = timeout;
    settings.client.timeout = timeout;
  }
  return settings;
}

}  // namespace convtune::cli::app
