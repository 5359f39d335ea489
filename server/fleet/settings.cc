#include "server/fleet/settings.h"

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
#include "client/cli/output/units.h"

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
  app.add_option("--postgres", conninfo,
                 "libpq connection string without a password; default: PG* variables")
      ->envname("CONVTUNE_POSTGRES");
  app.add_option("--postgres-file", file,
                 "file with the connection string, which may have a password (mode 0600); -: "
                 "standard input")
      ->envname("CONVTUNE_POSTGRES_FILE");
  app.add_option("--schema", schema, "PostgreSQL schema of the fleet's tables")
      ->envname("CONVTUNE_FLEET_SCHEMA")
      ->capture_default_str();
  app.add_option("--postgres-timeout", timeout, "how long PostgreSQL may take for one statement")
      ->envname("CONVTUNE_POSTGRES_TIMEOUT")
      ->capture_default_str();
}

absl::StatusOr<db::postgres::Connection::Options> PostgresFlags::Resolve() const {
  db::postgres::Connection::Options options;
  options.schema = schema;
  options.conninfo = conninfo;
  const absl::StatusOr<absl::Duration> most = cli::output::ParseTime("--postgres-timeout", timeout);
  if (!most.ok()) return most.status();
  if (*most < absl::Seconds(1) || *most > absl::Hours(24)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--postgres-timeout: must be from 1s to 24h, is ", timeout));
  }
  options.statement_timeout = *most;
  if (!file.empty()) {
    if (!conninfo.empty()) {
      return absl::InvalidArgumentError(
          "--postgres-file: cannot be given together with --postgres");
    }
    absl::StatusOr<std::string> read = ReadSecretFile(file);
    if (!read.ok()) return read.status();
    options.conninfo = *std::move(read);
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
