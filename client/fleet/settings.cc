#include "client/fleet/settings.h"

#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <regex>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/cli/app/settings.h"
#include "client/cli/output/units.h"
#include "proto/base/status_macros.h"

namespace convtune::fleet {
namespace {

absl::StatusOr<std::string> ReadSecretFile(const std::string& path) {
  if (path == "-") {
    const std::string text((std::istreambuf_iterator<char>(std::cin)), {});
    return std::string(absl::StripAsciiWhitespace(text));
  }
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--postgres-file: ", path, ": ", std::strerror(errno)));
  }
  // Kubernetes mounts secrets for a group, with root as the owner.
  const mode_t forbidden = info.st_uid == 0 ? 027 : 077;
  if ((info.st_mode & forbidden) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--postgres-file: ", path, ": must be for its owner alone (chmod 600), has mode ",
        absl::Hex(((info.st_mode >> 6) & 7) << 8 | ((info.st_mode >> 3) & 7) << 4 |
                  (info.st_mode & 7))));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file && text.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--postgres-file: cannot read ", path));
  }
  return std::string(absl::StripAsciiWhitespace(text));
}

}  // namespace

void PostgresFlags::Register(CLI::App& app) {
  const auto add = [&app](const char* name, std::string& value, const char* variable,
                          const char* type, const char* description) {
    return app.add_option(name, value, description)
        ->envname(variable)
        ->type_name(type)
        ->group(cli::app::kCommonOptions);
  };
  add("--postgres", conninfo, "CONVTUNE_POSTGRES", "CONNINFO",
      "libpq connection string without a password; default: PG* variables");
  add("--postgres-file", file, "CONVTUNE_POSTGRES_FILE", "FILE",
      "file with the connection string, which may have a password (mode 0600); -: standard input");
  add("--schema", schema, "CONVTUNE_FLEET_SCHEMA", "NAME",
      "PostgreSQL schema of the fleet's tables")
      ->capture_default_str();
  add("--postgres-timeout", timeout, "CONVTUNE_POSTGRES_TIMEOUT", "TIME",
      "how long PostgreSQL may take for one statement")
      ->capture_default_str();
}

absl::StatusOr<db::postgres::Connection::Options> PostgresFlags::Resolve() const {
  db::postgres::Connection::Options options;
  options.schema = schema;
  options.conninfo = conninfo;
  ASSIGN_OR_RETURN(options.statement_timeout,
                   cli::output::ParseTime("--postgres-timeout", timeout));
  if (options.statement_timeout < absl::Seconds(1) || options.statement_timeout > absl::Hours(24)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--postgres-timeout: must be from 1s to 24h, is ", timeout));
  }
  if (!file.empty()) {
    if (!conninfo.empty()) {
      return absl::InvalidArgumentError(
          "--postgres-file: cannot be given together with --postgres");
    }
    ASSIGN_OR_RETURN(options.conninfo, ReadSecretFile(file));
    return options;
  }
  static const std::regex kPassword(R"((^|[\s?&])password\s*=|^\w+://[^/@]*:[^/@]*@)");
  if (std::regex_search(conninfo, kPassword)) {
    return absl::InvalidArgumentError(
        "--postgres: must have no password, which everybody on this machine could read: put the "
        "connection string into a file for --postgres-file, or the password into ~/.pgpass");
  }
  return options;
}

}  // namespace convtune::fleet
