#include "client/cli/commands/doctor/issue_report.h"

#include <gnu/libc-version.h>
#include <pwd.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "client/cli/output/units.h"

namespace convtune::cli::commands::doctor {
namespace {

// In the place of a path among the secrets, until its word is redacted.
constexpr char kPath[] = "/PATH";
constexpr char kDottedQuad[] = R"(\d+(?:\.\d+){3})";

// Words that are redacted whatever the machine, by regular expressions in which ~ is any byte of a
// word; the first that fits counts.
constexpr std::pair<const char*, const char*> kWords[] = {
    {"UUID", "(?:GPU|MIG)-~*?"},
    {"ADDRESS", "unix:~*?|~*?://~*?"},
    {"ADDRESS", kDottedQuad},
    // HOST:PORT, which "gpu:0" is not, nor a time.
    {"ADDRESS", R"((?:~*\.~*|~*\]):\d+|~*[A-Za-z]~*:\d{3,})"},
    // IPv6: with "::" or five colons, which a time has not.
    {"ADDRESS", R"((?:[\da-fA-F:.\[\]]*::|(?:[\da-fA-F.\[]+:){5})[\da-fA-F:.\]]*(?:%~*?)?)"},
    {"PATH", "/~+?|~*?/PATH~*?"},
};

// `text` with `instead` for the words that `pattern` fits, but for their colons and full stops at
// the end.
std::string ReplaceWords(const std::string& text, const std::string& pattern,
                         const std::string& instead) {
  const std::regex words(
      absl::StrCat(R"((^|[ \n\t,;()'"=])(?:)", pattern, R"()(?=[:.]*(?:[ \n\t,;()'"=]|$)))"));
  return std::regex_replace(text, words, "$1" + instead);
}

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
    if (host.empty() || std::regex_match(std::string(host), std::regex(kDottedQuad))) continue;
    all.emplace_back(host);
    all.emplace_back(host.substr(0, host.find('.')));
  }
  return all;
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
  std::vector<std::string> names;
  for (const std::string& secret : secrets) {
    names.push_back(std::regex_replace(secret, std::regex(R"([^\w])"), R"(\$&)"));
  }
  if (!names.empty()) text = ReplaceWords(text, absl::StrJoin(names, "|"), "NAME");
  for (const auto& [instead, pattern] : kWords) {
    const std::string in_word = absl::StrReplaceAll(pattern, {{"~", R"([^ \n\t,;()'"=])"}});
    text = ReplaceWords(text, in_word, instead);
  }
  return text;
}

}  // namespace convtune::cli::commands::doctor
