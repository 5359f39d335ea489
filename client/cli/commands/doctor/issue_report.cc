#include "client/cli/commands/doctor/issue_report.h"

#include <gnu/libc-version.h>
#include <pwd.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/output/units.h"

namespace convtune::cli::commands::doctor {
namespace {

constexpr char kBetweenWords[] = " \n\t,;()'\"=";
// In the place of a path among the secrets, until its word is redacted.
constexpr char kPath[] = "/PATH";

// "Debian GNU/Linux 12 (bookworm)".
std::string Distribution() {
  std::ifstream file("/etc/os-release");
  std::string line;
  while (std::getline(file, line)) {
    absl::string_view value(line);
    if (absl::ConsumePrefix(&value, "PRETTY_NAME=")) {
      return absl::StrReplaceAll(value, {{"\"", ""}});
    }
  }
  return "unknown distribution";
}

bool IsNumber(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
}

bool IsDottedQuad(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '.');
  return parts.size() == 4 && std::all_of(parts.begin(), parts.end(), IsNumber);
}

// HOST:PORT, which "gpu:0" is not, nor a time.
bool IsHostAndPort(absl::string_view word) {
  const size_t colon = word.rfind(':');
  if (colon == absl::string_view::npos || !IsNumber(word.substr(colon + 1))) return false;
  const absl::string_view host = word.substr(0, colon);
  const bool is_name =
      std::any_of(host.begin(), host.end(), [](unsigned char c) { return std::isalpha(c) != 0; });
  return absl::StrContains(host, '.') || absl::EndsWith(host, "]") ||
         (is_name && word.size() - colon > 3);
}

// With "::" or five colons, which a time has not.
bool IsIpv6(absl::string_view word) {
  word = word.substr(0, word.find('%'));
  return word.find_first_not_of("0123456789abcdefABCDEF:.[]") == absl::string_view::npos &&
         (absl::StrContains(word, "::") || std::count(word.begin(), word.end(), ':') >= 5);
}

// `secrets` that are not empty, and the hosts among them without port and without domain.
std::vector<std::string> WithHosts(const std::vector<std::string>& secrets) {
  std::vector<std::string> all;
  for (const std::string& secret : secrets) {
    if (secret.empty()) continue;
    all.push_back(secret);
    absl::string_view host = secret;
    if (const size_t scheme = host.find("://"); scheme != absl::string_view::npos) {
      host.remove_prefix(scheme + 3);
    }
    host = host.substr(0, host.find_first_of(":/"));
    if (host.empty() || IsDottedQuad(host)) continue;
    all.emplace_back(host);
    all.emplace_back(host.substr(0, host.find('.')));
  }
  return all;
}

std::string RedactWord(absl::string_view word, const std::vector<std::string>& secrets) {
  if (word.empty()) return "";
  size_t size = word.size();
  while (size > 0 && (word[size - 1] == ':' || word[size - 1] == '.')) --size;
  const absl::string_view text = word.substr(0, size);
  const absl::string_view end = word.substr(size);
  const char* instead = nullptr;
  if ((text.size() > 1 && text[0] == '/') || absl::StrContains(text, kPath)) instead = "PATH";
  if (absl::StartsWith(text, "unix:") || absl::StrContains(text, "://") || IsHostAndPort(text) ||
      IsDottedQuad(text) || IsIpv6(text)) {
    instead = "ADDRESS";
  }
  if (absl::StartsWith(text, "GPU-") || absl::StartsWith(text, "MIG-")) instead = "UUID";
  if (std::find(secrets.begin(), secrets.end(), text) != secrets.end()) instead = "NAME";
  return instead == nullptr ? std::string(word) : absl::StrCat(instead, end);
}

}  // namespace

std::vector<app::Finding> DescribeSystem(const v1::ServerInfo& server,
                                         const v1::ListEnvironmentsResponse& environments) {
  utsname kernel{};
  uname(&kernel);
  const std::string release = kernel.release;
  std::vector<app::Finding> facts;
  const auto add = [&facts](const std::string& what) { facts.push_back(app::Fine(what)); };
  add(absl::StrCat(Distribution(), ", Linux ",
                   release.substr(0, release.find_first_not_of("0123456789.")), " ", kernel.machine,
                   ", glibc ", gnu_get_libc_version(), ", convtune " CONVTUNE_VERSION));
  if (server.version().empty()) return facts;
  add(absl::StrCat("database schema ", server.schema_version(), ", ", server.tuning_count(),
                   " tunings; ", server.lookups(), " look-ups, ", server.hits(), " hits, ",
                   server.worker_requests(), " requests to workers, ", server.worker_starts(),
                   " worker starts, ", server.queue_depth(), " queued since ",
                   output::FormatTimestamp(server.start_time())));
  for (const v1::Environment& environment : environments.environments()) {
    add(absl::StrCat("environment ", environment.text(), ": ", environment.tuning_count(),
                     " tunings", environment.current() ? ", has a device" : ""));
  }
  return facts;
}

std::vector<std::string> NamesOfThisMachine() {
  std::vector<std::string> names;
  utsname kernel{};
  if (uname(&kernel) == 0) {
    names.emplace_back(kernel.nodename);
  }
  if (const passwd* user = getpwuid(getuid()); user != nullptr) {
    names.push_back(user->pw_name);
    names.push_back(user->pw_dir);
  }
  return names;
}

std::string Redact(std::string text, std::vector<std::string> secrets) {
  secrets = WithHosts(secrets);
  // The longest first: a folder's name may begin with another folder's.
  std::sort(secrets.begin(), secrets.end(),
            [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  // Paths as wholes: they may have spaces.
  for (const std::string& secret : secrets) {
    if (secret.size() > 1 && absl::StrContains(secret, '/')) {
      text = absl::StrReplaceAll(text, {{secret, kPath}});
    }
  }
  std::string redacted;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(kBetweenWords, at), text.size());
    redacted += RedactWord(absl::string_view(text).substr(at, end - at), secrets);
    if (end < text.size()) redacted += text[end];
    at = end + 1;
  }
  return redacted;
}

}  // namespace convtune::cli::commands::doctor
