#include "client/cli/commands/run/run.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "proto/base/default_paths.h"
#include "proto/base/errors.h"

namespace convtune::cli::commands::run {
namespace {

namespace fs = std::filesystem;

// The counters of a process, and what is said of one that is not 0.
constexpr std::pair<const char*, const char*> kCounters[] = {
    {"served", nullptr},
    {"learned", nullptr},
    {"observed", " left alone"},
    {"passed", " of other forms"},
    {"dropped", " reports not taken"},
    {"over_limit", " with nothing below --max-workspace"},
    {"errata", " without an engine that is known to be wrong"}};

// Folders, from that of this program, in which the libraries may lie: a build
// folder's, an installation's, Debian's, and beside it.
constexpr const char* kFolders[] = {
    "/../lib/",          "/../lib64/", "/../lib/x86_64-linux-gnu/", "/../lib/aarch64-linux-gnu/",
    "/../lib/convtune/", "/"};

using Json = nlohmann::json;

int64_t NumberOf(const Json& value) {
  return value.is_number_unsigned() ? std::max<int64_t>(value.get<int64_t>(), 0) : 0;
}

std::string How(const PreloadProcess& process) {
  return process.reached.empty()      ? "cuDNN was loaded and never asked through convtune"
         : process.reached == "dlsym" ? "cuDNN looked up by dlsym"
                                      : "cuDNN linked";
}

std::string Line(const PreloadProcess& process) {
  std::string line = absl::StrCat("process ", process.pid, " (", process.name, "): ", How(process));
  if (!process.reached.empty()) {
    absl::StrAppend(&line, ": ", process.served, " served, ", process.missed, " missed");
  }
  return line;
}

std::string Sums(const PreloadCounters& counters, const std::string& snapshot) {
  if (counters.each.empty()) {
    return "no process said that it loaded cuDNN; one that is killed or leaves by _exit says "
           "nothing";
  }
  if (counters.processes == 0) return "no process asked cuDNN for an algorithm through convtune";
  std::vector<std::string> reasons;
  for (const auto& [reason, count] : counters.missed) {
    reasons.push_back(absl::StrCat(absl::StrReplaceAll(reason, {{"_", " "}}), " ", count));
  }
  std::string text =
      absl::StrCat(counters.Sum("served"), " served, ", counters.Sum("missed"), " missed");
  if (!reasons.empty()) absl::StrAppend(&text, " (", absl::StrJoin(reasons, ", "), ")");
  absl::StrAppend(&text, ", ", counters.Sum("learned"), " learned");
  for (const auto& [name, words] : kCounters) {
    const int64_t count = counters.Sum(name);
    if (words != nullptr && count > 0) absl::StrAppend(&text, ", ", count, words);
  }
  if (counters.each.size() == 1) absl::StrAppend(&text, ", ", How(counters.each.front()));
  if (counters.processes > 1) absl::StrAppend(&text, ", in ", counters.processes, " processes");
  if (!counters.no_snapshot.empty()) {
    absl::StrAppend(&text, "; no snapshot: ", snapshot, ": ",
                    absl::StrJoin(counters.no_snapshot, ", "));
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> FindPreloadLibrary() {
  std::error_code error;
  std::vector<std::string> tried;
  for (const char* relative : kFolders) {
    const std::string candidate = absl::StrCat(ProgramFolder(), relative, kPreloadLibrary);
    const fs::path real = fs::canonical(candidate, error);
    if (!error) return real.string();
    tried.push_back(candidate);
  }
  return FailedPrecondition(
      kPreloadLibrary, " is in none of the places where it should be; say where with --library: ",
      absl::StrJoin(tried, ", "));
}

PreloadCounters ReadPreloadCounters(std::istream& in) {
  PreloadCounters sum;
  for (std::string line; std::getline(in, line);) {
    const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object()) continue;
    const auto number = [&object](const char* name) {
      return NumberOf(object.value(name, Json()));
    };
    const auto text = [&object](const char* name) {
      const Json value = object.value(name, Json());
      return value.is_string() ? value.get<std::string>() : "";
    };
    PreloadProcess& process = sum.each.emplace_back();
    process.pid = number("pid");
    process.name = text("name");
    if (object.contains("bypassed")) {
      ++sum.bypassed;
      continue;
    }
    ++sum.processes;
    process.reached = text("reached");
    process.served = number("served");
    if (const std::string snapshot = text("snapshot"); !snapshot.empty() && snapshot != "valid") {
      sum.no_snapshot.insert(snapshot);
    }
    for (const auto& [name, words] : kCounters) sum.sums[name] += number(name);
    const Json missed = object.value("missed", Json());
    if (!missed.is_object()) continue;
    for (const auto& [reason, value] : missed.items()) {
      if (const int64_t count = NumberOf(value); count > 0) {
        sum.missed[reason] += count;
        process.missed += count;
      }
    }
    sum.sums["missed"] += process.missed;
  }
  return sum;
}

std::vector<std::string> Describe(const PreloadCounters& counters, const std::string& snapshot) {
  // A program may have started thousands.
  constexpr size_t kMostLines = 16;
  std::vector<std::string> lines = {Sums(counters, snapshot)};
  if (counters.each.size() == 1 && counters.processes == 1) return lines;
  for (const PreloadProcess& process : counters.each) {
    if (lines.size() > kMostLines) {
      lines.push_back(absl::StrCat("and ", counters.each.size() - kMostLines, " more processes"));
      break;
    }
    lines.push_back(Line(process));
  }
  return lines;
}

}  // namespace convtune::cli::commands::run
