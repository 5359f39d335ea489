#include "client/preload/process/counters.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

namespace convtune::preload::process {

constinit Counters counters;
constinit std::atomic<bool> looked_up{false};

void CountMiss(snapshot::UnservedReason reason) {
  const auto index = static_cast<uint32_t>(reason);
  if (index < std::size(snapshot::kUnservedReasons)) {
    Count(&counters.missed[index]);
  }
}

namespace {

using Printed = unsigned long long;  // NOLINT(google-runtime-int): what %llu takes

Printed Value(const std::atomic<uint64_t>& counter) {
  return counter.load(std::memory_order_relaxed);
}

// Puts the process id in the place of "%p".
void ExpandPath(const char* pattern, char* path, size_t size) {
  const char* place = strstr(pattern, "%p");
  if (place == nullptr) {
    snprintf(path, size, "%s", pattern);
    return;
  }
  snprintf(path, size, "%.*s%d%s", static_cast<int>(place - pattern), pattern,
           static_cast<int>(getpid()), place + 2);
}

// One write, so that the lines of several processes stay whole.
void Append(const char* pattern, const char* line, size_t size) {
  char path[4096];
  ExpandPath(pattern, path, sizeof path);
  const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) {
    return;
  }
  const ssize_t written = write(fd, line, size);
  static_cast<void>(written);
  close(fd);
}

// The process's name as the kernel has it, without what JSON would have to quote.
struct ProcessName {
  ProcessName() {
    // Not the calling thread's, which prctl gives.
    const int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    const ssize_t size = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0) {
      close(fd);
    }
    text[size > 0 ? size - 1 : 0] = '\0';  // in the place of the line's end
    for (char* c = text; *c != '\0'; ++c) {
      if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\') {
        *c = '?';
      }
    }
  }
  char text[32] = {};
};

}  // namespace

void WriteCounters(const char* path, const char* policy, const char* snapshot, uint64_t release) {
  char line[2048];
  const Counters& c = counters;
  char missed[512] = "";
  for (size_t i = 1, at = 0; i < std::size(snapshot::kUnservedReasons); ++i) {
    at += static_cast<size_t>(snprintf(missed + at, sizeof missed - at, "%s\"%s\":%llu",
                                       i == 1 ? "" : ",", snapshot::kUnservedReasons[i],
                                       Value(c.missed[i])));
  }
  const int size = snprintf(
      line, sizeof line,
      "{\"pid\":%d,\"name\":\"%s\",\"reached\":\"%s\",\"policy\":\"%s\",\"snapshot\":\"%s\","
      "\"release\":%llu,\"problems\":%llu,"
      "\"queries\":%llu,\"served\":%llu,\"observed\":%llu,\"fallbacks\":%llu,\"passed\":%llu,"
      "\"missed\":{%s},"
      "\"limited\":%llu,\"over_limit\":%llu,\"errata\":%llu,"
      "\"plans\":%llu,\"plans_served\":%llu,\"plans_own\":%llu,"
      "\"executions\":%llu,\"executions_served\":%llu,\"captured\":%llu,\"captured_served\":%llu,"
      "\"legacy_calls\":%llu,\"legacy_served\":%llu,"
      "\"learned\":%llu,\"datagrams\":%llu,\"dropped\":%llu}\n",
      static_cast<int>(getpid()), ProcessName().text,
      looked_up.load(std::memory_order_relaxed) ? "dlsym" : "linked", policy, snapshot,
      static_cast<Printed>(release), Value(c.problems), Value(c.queries), Value(c.served),
      Value(c.observed), Value(c.fallbacks), Value(c.passed), missed, Value(c.limited),
      Value(c.over_limit), Value(c.errata), Value(c.plans), Value(c.plans_served),
      Value(c.plans_own), Value(c.executions), Value(c.executions_served), Value(c.captured),
      Value(c.captured_served), Value(c.legacy_calls), Value(c.legacy_served), Value(c.learned),
      Value(c.datagrams), Value(c.dropped));
  if (size > 0 && static_cast<size_t>(size) < sizeof line) {
    Append(path, line, static_cast<size_t>(size));
  }
}

void WriteBypassed(const char* path) {
  char line[128];
  const int size = snprintf(line, sizeof line, "{\"pid\":%d,\"name\":\"%s\",\"bypassed\":true}\n",
                            static_cast<int>(getpid()), ProcessName().text);
  Append(path, line, static_cast<size_t>(size));
}

void ResetCounters() {
  auto* first = reinterpret_cast<std::atomic<uint64_t>*>(&counters);
  for (size_t i = 0; i < sizeof counters / sizeof *first; ++i) {
    first[i].store(0, std::memory_order_relaxed);
  }
}

}  // namespace convtune::preload::process
