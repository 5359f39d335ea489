#include "tests/simgpu/faults/faults.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace convtune::simgpu {
namespace {

// What an action can be done to. Executions by how they run: a replay is no call of cuDNN's, and
// outside a capture nothing can join one.
enum Target : unsigned {
  kEager = 128,
  kCapture = 256,
  kReplay = 512,
  kCall = kEager | kCapture,
  kExecution = kCall | kReplay,
  kFind = 2,
  kMalloc = 4,
  kKernel = 8,
  kJit = 16,
  kFunction = 32,
  kLoad = 64
};

struct ActionRow {
  const char* word;
  Action action;
  unsigned targets;
};
constexpr ActionRow kActions[] = {
    {"wrong", Action::kWrong, kExecution},
    {"nan", Action::kNan, kExecution},
    {"beyond_output", Action::kBeyondOutput, kExecution},
    {"beyond_workspace", Action::kBeyondWorkspace, kExecution},
    {"tf32", Action::kTf32, kExecution},
    {"slow", Action::kSlow, kExecution | kKernel},
    {"not_supported", Action::kNotSupported, kCall | kFind},
    {"fail", Action::kFail, kCall | kFind | kMalloc | kKernel | kJit | kFunction | kLoad},
    {"leave_capture_open", Action::kLeaveCaptureOpen, kCall},
    {"fork", Action::kFork, kCapture},
    {"synchronize", Action::kSynchronize, kCall},
    {"allocate", Action::kAllocate, kCall},
    {"hang", Action::kHang, kExecution | kFind | kKernel | kJit | kFunction | kLoad},
    {"sticky", Action::kSticky, kExecution | kKernel},
    {"lost", Action::kLost, kMalloc | kFunction},
    {"abort", Action::kAbort, kExecution | kFind | kKernel | kFunction},
};

struct Rule {
  std::string text;
  std::vector<std::pair<std::string, std::string>> where;
  int64_t nth = 0;
  int64_t times = 0;
  Action action = Action::kFail;
  unsigned targets = 0;
};

[[noreturn]] void RefuseLine(const std::string& line, const std::string& why) {
  Refuse("faults: " + line + ": " + why);
}

unsigned LaunchOf(const std::string& launch) {
  if (launch == "eager") return kEager;
  if (launch == "capture") return kCapture;
  if (launch == "replay") return kReplay;
  return 0;
}

unsigned TargetOf(const std::string& key, const std::string& value) {
  if (key == "launch") return LaunchOf(value);
  if (key == "engine" || key == "config" || key == "legacy" || key == "operation")
    return kExecution;
  if (key == "find") return kFind;
  if (key == "malloc") return kMalloc;
  if (key == "kernel") return kKernel;
  if (key == "jit") return kJit;
  if (key == "call") return kFunction;
  if (key == "load_code") return kLoad;
  return 0;
}

Rule Parse(const std::string& line) {
  Rule rule;
  rule.text = line;
  const std::vector<std::string> sides = absl::StrSplit(line, " = ");
  if (sides.size() != 2) RefuseLine(line, "must be WHERE = ACTION");
  unsigned target = 0;
  for (const absl::string_view word : absl::StrSplit(sides[0], ' ', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> where = absl::StrSplit(word, absl::MaxSplits(':', 1));
    if (where.first == "nth" || where.first == "times") {
      int64_t* const number = where.first == "nth" ? &rule.nth : &rule.times;
      if (!absl::SimpleAtoi(where.second, number) || *number < 1)
        RefuseLine(line, where.first + " must be a number from 1");
      continue;
    }
    const unsigned of_key = TargetOf(where.first, where.second);
    if (of_key == 0) RefuseLine(line, "there is no " + std::string(word));
    target = target == 0 ? of_key : target & of_key;
    if (target == 0) RefuseLine(line, "its keys are of different things");
    rule.where.push_back(where);
  }
  for (const ActionRow& row : kActions) {
    if (sides[1] != row.word) continue;
    if ((row.targets & target) == 0) RefuseLine(line, "cannot be done there");
    rule.action = row.action;
    rule.targets = row.targets;
    return rule;
  }
  RefuseLine(line, "there is no action " + sides[1]);
}

bool Holds(const std::string& key, const std::string& value, const Site& site) {
  const auto here = site.find(key);
  if (here == site.end()) return false;
  if (key != "malloc") return here->second == value;
  int64_t bytes = 0;
  int64_t least = 0;
  return (value.empty() || absl::SimpleAtoi(value, &least)) &&
         absl::SimpleAtoi(here->second, &bytes) && bytes >= least;
}

// The lines of the script as they are now.
class Script {
 public:
  const std::vector<Rule>& Read(const char* path) {
    struct stat now = {};
    if (stat(path, &now) != 0) now = {};
    const int64_t stamp = now.st_mtim.tv_sec * 1'000'000'000 + now.st_mtim.tv_nsec;
    if (stamp != stamp_ || now.st_size != size_) {
      stamp_ = stamp;
      size_ = now.st_size;
      rules_.clear();
      std::ifstream file(path);
      for (std::string line; std::getline(file, line);) {
        line = std::string(absl::StripAsciiWhitespace(line));
        if (!line.empty() && line[0] != '#') rules_.push_back(Parse(line));
      }
    }
    return rules_;
  }

 private:
  int64_t stamp_ = -1;
  int64_t size_ = -1;
  std::vector<Rule> rules_;
};

// How often a line has fired, in all processes.
int64_t TimesFired(const std::string& log, const std::string& text) {
  std::ifstream file(log);
  int64_t times = 0;
  for (std::string line; std::getline(file, line);) times += line == text ? 1 : 0;
  return times;
}

}  // namespace

std::optional<Action> FaultAt(const Site& site) {
  static const char* const path = std::getenv("SIMGPU_FAULTS");
  static auto& script = *new Script();
  static auto& held = *new std::map<std::string, int64_t>();
  if (path == nullptr || *path == '\0') return std::nullopt;
  const std::string log = std::string(path) + ".fired";
  const auto launch = site.find("launch");
  for (const Rule& rule : script.Read(path)) {
    bool holds = launch == site.end() || (rule.targets & LaunchOf(launch->second)) != 0;
    for (const auto& [key, value] : rule.where) holds = holds && Holds(key, value, site);
    if (!holds) continue;
    const int64_t count = ++held[rule.text];
    if (rule.nth > 0 && count != rule.nth) continue;
    if (rule.times > 0 && TimesFired(log, rule.text) >= rule.times) continue;
    std::ofstream(log, std::ios::app) << rule.text << '\n';
    return rule.action;
  }
  return std::nullopt;
}

std::optional<Action> FaultOfCall(const char* function) {
  const std::optional<Action> fault = FaultAt({{"call", function}});
  if (fault == Action::kAbort) std::abort();
  if (fault == Action::kHang) Hang();
  return fault;
}

void Refuse(std::string_view what) {
  std::fprintf(stderr, "simgpu: %.*s\n", static_cast<int>(what.size()), what.data());
  std::exit(2);
}

void Hang() {
  while (true) pause();
}

}  // namespace convtune::simgpu
