// Preloaded into convtuned: ends it with SIGKILL at a chosen kind of system
// call, so that a kill lands exactly where the test says.
//   CRASH_AT=commit      at a write to the write-ahead log
//   CRASH_AT=checkpoint  at a write to the database file itself
//   CRASH_AT=publish     after a sync of the write-ahead log: what was
//                        committed is on disk, and nobody was told yet
//   CRASH_AFTER=n        at the n-th such call since the trigger file appeared
//   CRASH_TRIGGER=path   nothing is counted before this file exists
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum Target { kNone, kLog, kDatabase };

static atomic_int calls;

static int EndsWith(const char* text, const char* end) {
  const size_t length = strlen(text), tail = strlen(end);
  return length >= tail && strcmp(text + length - tail, end) == 0;
}

static enum Target TargetOf(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return kNone;
  path[length] = 0;
  if (EndsWith(path, "-wal")) return kLog;
  if (EndsWith(path, ".db") || EndsWith(path, ".sqlite") || EndsWith(path, ".sqlite3")) {
    return kDatabase;
  }
  return kNone;
}

static void Arrive(const char* phase, int fd, enum Target target) {
  const char* at = getenv("CRASH_AT");
  const char* trigger = getenv("CRASH_TRIGGER");
  if (!at || strcmp(at, phase) != 0 || !trigger || access(trigger, F_OK) != 0) return;
  if (TargetOf(fd) != target) return;
  const char* after = getenv("CRASH_AFTER");
  if (atomic_fetch_add(&calls, 1) + 1 == (after ? atoi(after) : 1)) raise(SIGKILL);
}

typedef ssize_t (*PwriteFn)(int, const void*, size_t, off_t);
typedef int (*SyncFn)(int);

static ssize_t Write(const char* name, int fd, const void* data, size_t size, off_t offset) {
  const PwriteFn real = (PwriteFn)dlsym(RTLD_NEXT, name);
  const char* at = getenv("CRASH_AT");
  if (at && strcmp(at, "commit") == 0) Arrive("commit", fd, kLog);
  if (at && strcmp(at, "checkpoint") == 0) Arrive("checkpoint", fd, kDatabase);
  return real(fd, data, size, offset);
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  return Write("pwrite", fd, data, size, offset);
}

ssize_t pwrite64(int fd, const void* data, size_t size, off_t offset) {
  return Write("pwrite64", fd, data, size, offset);
}

static int Sync(const char* name, int fd) {
  const SyncFn real = (SyncFn)dlsym(RTLD_NEXT, name);
  const int result = real(fd);
  Arrive("publish", fd, kLog);
  return result;
}

int fsync(int fd) { return Sync("fsync", fd); }
int fdatasync(int fd) { return Sync("fdatasync", fd); }
