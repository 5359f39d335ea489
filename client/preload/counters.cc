#include "client/preload/counters.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

namespace convtune::preload {

constinit std::atomic<uint64_t> counters[std::size(kCounterNames)];
constinit std::atomic<bool> looked_up{false};

namespace {

constinit std::atomic<uint64_t> missed[std::size(snapshot::kUnservedReasons)];  // [0] is not used

// Adds a member to those of `list`, which has `size` bytes.
void AddCount(const char* name, const std::atomic<uint64_t>& count, char* list, size_t size) {
  const size_t at = strlen(list);
  snprintf(list + at, size - at, "%s\"%s\":%" PRIu64, at == 0 ? "" : ",", name,
           count.load(std::memory_order_relaxed));
}

// One write, so that the lines of several processes stay whole. "%p" in the path is the process id.
void Append(const char* pattern, const char* line, size_t size) {
  char path[4096];
  const char* place = strstr(pattern, "%p");
  if (place == nullptr) {
    snprintf(path, sizeof path, "%s", pattern);
  } else {
    snprintf(path, sizeof path, "%.*s%d%s", static_cast<int>(place - pattern), pattern,
             static_cast<int>(getpid()), place + 2);
  }
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

void CountMiss(snapshot::UnservedReason reason) {
  missed[static_cast<uint32_t>(reason)].fetch_add(1, std::memory_order_relaxed);
}

void WriteCounters(const char* path, const char* policy, const char* snapshot, uint64_t release) {
  char counts[1024] = "";
  for (size_t i = 0; i < std::size(counters); ++i) {
    AddCount(kCounterNames[i], counters[i], counts, sizeof counts);
  }
  char reasons[256] = "";
  for (size_t i = 1; i < std::size(missed); ++i) {
    AddCount(snapshot::kUnservedReasons[i], missed[i], reasons, sizeof reasons);
  }
  char line[2048];
  const int size = snprintf(
      line, sizeof line,
      "{\"pid\":%d,\"name\":\"%s\",\"reached\":\"%s\",\"policy\":\"%s\",\"snapshot\":\"%s\","
      "\"release\":%" PRIu64 ",%s,\"missed\":{%s}}\n",
      static_cast<int>(getpid()), ProcessName().text,
      looked_up.load(std::memory_order_relaxed) ? "dlsym" : "linked", policy, snapshot, release,
      counts, reasons);
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
  for (std::atomic<uint64_t>& counter : counters) {
    counter.store(0, std::memory_order_relaxed);
  }
  for (std::atomic<uint64_t>& counter : missed) {
    counter.store(0, std::memory_order_relaxed);
  }
}

}  // namespace convtune::preload
