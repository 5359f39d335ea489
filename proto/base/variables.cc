#include "proto/base/variables.h"

#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace convtune {
namespace {

// The names that programs read, without CONVTUNE_ in front.
constexpr char kNames[] =
    // The daemon's, one for each flag.
    "ALLOW_MISSING_DEVICES ALLOW_NETWORK_FS AUTO_PROMOTE BACKUP_DIR BACKUP_EVERY BACKUP_KEEP BASE "
    "BATCH BUNDLE_KEY CUDNN_OF DEVICES DRAIN_TIMEOUT DTYPE FILE HANG_TIMEOUT IDLE_TIMEOUT LAYOUT "
    "LISTEN LOG_FORMAT LOG_LEVEL MAX_DB_SIZE MEMORY_BUDGET METRICS_ADDRESS NODE NO_ERRATA ON ONCE "
    "OP OPEN_SOCKET PROBE_INTERVAL PROFILE PUBLISH_EVIDENCE ROLE STATE_DIR TIME_BUDGET TLS_CERT "
    "TLS_CLIENT_CA TLS_KEY TUNE_WANTED WAIT_IDLE WANTED_BUDGET WORKER "
    "MEASURE_DESPITE_SELF_CHECK TRACE WORKER_CORES "
    // The command line's and the clients'.
    "ADDRESS CONFIG ENVIRONMENT PYTHON SNAPSHOT TIMEOUT TLS_CA "
    // convtune-fleet's.
    "FLEET_ALIVE_FILE FLEET_METRICS_ADDRESS FLEET_SCHEMA FLEET_SIGN KEEP_SUPERSEDED POSTGRES "
    "POSTGRES_FILE POSTGRES_TIMEOUT REQUIRE_SIGNED_DECISIONS VERIFY_UPGRADES "
    // Of programs that the library is preloaded into.
    "PRELOAD_ALLOW PRELOAD_CANARY PRELOAD_COUNTERS PRELOAD_ERRATA PRELOAD_LIBRARY "
    "PRELOAD_MAX_WORKSPACE PRELOAD_OFF PRELOAD_POLICY PRELOAD_REPORT RUN_COUNTERS "
    // Of builds and tests.
    "BUILD_DIR CUDA_FROM OTHER_BUILD_DIR";
constexpr std::string_view kOfTests[] = {"TEST_", "FAKE_"};
constexpr std::string_view kOfKubernetes[] = {"_SERVICE_HOST", "_SERVICE_PORT", "_PORT_"};

// How many letters have to be put in, taken out or exchanged.
int Distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (const char letter : a) {
    int corner = row[0]++;
    for (size_t i = 0; i < b.size(); ++i) {
      const int exchanged = corner + (letter == b[i] ? 0 : 1);
      corner = row[i + 1];
      row[i + 1] = std::min({exchanged, row[i] + 1, corner + 1});
    }
  }
  return row.back();
}

bool IsOfOthers(std::string_view name) {
  const auto begins = [name](std::string_view part) { return name.starts_with(part); };
  const auto holds = [name = absl::StrCat("_", std::string(name))](std::string_view part) {
    return name.find(part) != std::string::npos;
  };
  return std::ranges::any_of(kOfTests, begins) || std::ranges::any_of(kOfKubernetes, holds) ||
         name == "PORT" || name.ends_with("_PORT");
}

}  // namespace

std::vector<std::string> UnknownVariables() {
  const std::vector<std::string> known = absl::StrSplit(kNames, ' ');
  std::vector<std::string> warnings;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view full = text.substr(0, text.find('='));
    const std::string_view name = full.substr(std::min(full.size(), full.find('_') + 1));
    const bool of_daemon = full.starts_with("CONVTUNED_");
    if (!of_daemon && !full.starts_with("CONVTUNE_")) continue;
    const bool is_empty = full.size() + 1 >= text.size();
    if (is_empty || full == "CONVTUNED_CONFIG") continue;
    if (IsOfOthers(name) || (!of_daemon && std::ranges::count(known, name) > 0)) continue;
    const auto nearest = std::ranges::min_element(
        known, {}, [name](const std::string& one) { return Distance(name, one); });
    std::string warning = absl::StrCat(std::string(full), ": no program of convtune reads this");
    if (Distance(name, *nearest) <= std::max<int>(2, std::ssize(name) / 3)) {
      const bool of_config = of_daemon && *nearest == "CONFIG";
      absl::StrAppend(&warning, "; did you mean CONVTUNE", of_config ? "D_" : "_", *nearest, "?");
    }
    warnings.push_back(std::move(warning));
  }
  return warnings;
}

}  // namespace convtune
