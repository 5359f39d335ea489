#include "client/preload/state.h"

#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <optional>

#include "client/preload/counters.h"
#include "client/preload/real_cudnn.h"
#include "client/preload/shadow.h"
#include "proto/model/byte_size.h"

namespace convtune::preload {
namespace {

// Null where it is not set or empty.
const char* Variable(const char* name) {
  const char* value = getenv(name);
  return value != nullptr && value[0] != '\0' ? value : nullptr;
}

void Refuse(Settings* settings, const char* name, const char* rule, const char* value) {
  settings->off = true;
  fprintf(stderr, "convtune: %s: %s, is \"%.100s\"; cuDNN is left alone\n", name, rule, value);
}

void ReadBool(const char* name, bool* target, Settings* settings) {
  const char* value = Variable(name);
  if (value == nullptr) {
    return;
  }
  if (strcmp(value, "1") != 0 && strcmp(value, "0") != 0) {
    Refuse(settings, name, "must be 0 or 1", value);
    return;
  }
  *target = value[0] == '1';
}

void ReadPolicy(Settings* settings) {
  constexpr char kName[] = "CONVTUNE_PRELOAD_POLICY";
  const char* value = Variable(kName);
  if (value == nullptr) {
    return;
  }
  for (const Policy policy : {Policy::kObserve, Policy::kReorder, Policy::kTruncate}) {
    if (strcmp(value, kPolicyNames[static_cast<int>(policy)]) == 0) {
      settings->policy = policy;
      return;
    }
  }
  Refuse(settings, kName, "must be observe, reorder or truncate", value);
}

void ReadAllowed(Settings* settings) {
  constexpr char kName[] = "CONVTUNE_PRELOAD_ALLOW";
  const char* rest = Variable(kName);
  while (rest != nullptr && *rest != '\0') {
    const char* comma = strchr(rest, ',');
    const size_t size = comma == nullptr ? strlen(rest) : static_cast<size_t>(comma - rest);
    if (size == 5 && memcmp(rest, "notes", size) == 0) {
      settings->allow_notes = true;
    } else if (size == 9 && memcmp(rest, "workspace", size) == 0) {
      settings->allow_workspace = true;
    } else {
      Refuse(settings, kName, "must be a list of notes and workspace", rest);
      return;
    }
    rest = comma == nullptr ? nullptr : comma + 1;
  }
}

void ReadMaxWorkspace(Settings* settings) {
  constexpr char kName[] = "CONVTUNE_PRELOAD_MAX_WORKSPACE";
  const char* value = Variable(kName);
  const std::optional<int64_t> bytes = value == nullptr ? -1 : ParseByteSize(value);
  if (!bytes) {
    Refuse(settings, kName, "must be a size such as 256MiB", value);
  }
  settings->max_workspace = bytes.value_or(-1);
}

void ReadCountersPath(const char* name, char* path, Settings* settings) {
  const char* value = Variable(name);
  if (value == nullptr) {
    return;
  }
  if (strlen(value) >= kMaxPath) {
    Refuse(settings, name, "must be shorter than 4096 bytes", value);
  } else {
    memcpy(path, value, strlen(value) + 1);
  }
}

void ReadPaths(Settings* settings) {
  snapshot::SnapshotFolder folder = {};
  const char* chosen = Variable("CONVTUNE_SNAPSHOT");
  if (chosen == nullptr) {
    folder = snapshot::FindSnapshotFolder(/*ask_for_user=*/false);
  } else if (chosen[0] != '/' || strlen(chosen) >= sizeof folder.path) {
    Refuse(settings, "CONVTUNE_SNAPSHOT", "must be an absolute path of a folder", chosen);
  } else {
    memcpy(folder.path, chosen, strlen(chosen) + 1);
  }
  snprintf(settings->snapshot, kMaxPath, "%s/%s", folder.path, snapshot::kSnapshotFile);
  snprintf(settings->socket, kMaxPath, "%s/%s", folder.path, snapshot::kDatagramSocket);
  snprintf(settings->kill_file, kMaxPath, "%s/%s", folder.path, snapshot::kKillSwitchFile);
  ReadCountersPath("CONVTUNE_PRELOAD_COUNTERS", settings->counters, settings);
  ReadCountersPath(kRunCountersVariable, settings->run_counters, settings);
}

}  // namespace

void ReadSettings(Settings* settings) {
  ReadBool("CONVTUNE_PRELOAD_OFF", &settings->off, settings);
  ReadPolicy(settings);
  ReadAllowed(settings);
  ReadMaxWorkspace(settings);
  ReadBool("CONVTUNE_PRELOAD_ERRATA", &settings->errata, settings);
  ReadBool("CONVTUNE_PRELOAD_REPORT", &settings->report, settings);
  if (Variable("CONVTUNE_PRELOAD_CANARY") != nullptr) {
    bool canary = false;
    ReadBool("CONVTUNE_PRELOAD_CANARY", &canary, settings);
    settings->canary = canary ? 1 : 0;
  }
  ReadPaths(settings);
}

namespace {

// Not built before it is needed, never destroyed: other libraries' exit
// handlers may still call cuDNN.
alignas(State) unsigned char storage[sizeof(State)];
pthread_once_t once = PTHREAD_ONCE_INIT;
constinit std::atomic<bool> initialised{false};

State& Mutable() { return *reinterpret_cast<State*>(storage); }

void AtExit() {
  const State& state = Mutable();
  for (const char* path : {state.settings.counters, state.settings.run_counters}) {
    if (path[0] != '\0') {
      WriteCounters(path, kPolicyNames[static_cast<int>(state.settings.policy)],
                    state.snapshot_reason, state.has_snapshot ? state.view.header().release : 0);
    }
  }
}

int FindCudnn(dl_phdr_info* info, size_t /*size*/, void* /*data*/) {
  return info->dlpi_name != nullptr && IsCudnnLibrary(info->dlpi_name) ? 1 : 0;
}

// At the end of a process that `convtune run` started and that loaded cuDNN and never called a
// hook: nobody else would say so.
__attribute__((destructor)) void TellBypassed() {
  if (initialised.load(std::memory_order_relaxed)) {
    return;
  }
  const char* path = getenv(kRunCountersVariable);
  if (path != nullptr && path[0] != '\0' && dl_iterate_phdr(FindCudnn, nullptr) != 0) {
    WriteBypassed(path);
  }
}

void InChild() {
  OpenShadowLocks();
  ResetCounters();
}

// True for `permille` of a thousand processes, at random.
bool DrawCanary(uint32_t permille) {
  uint32_t number = 0;
  return permille > 0 && getrandom(&number, sizeof number, GRND_NONBLOCK) == sizeof number &&
         number % 1000 < permille;
}

void Init() {
  State& state = *new (storage) State;
  initialised.store(true, std::memory_order_relaxed);
  ReadSettings(&state.settings);
  // The attributes' numbers are those of cuDNN 9.
  constexpr size_t kMajor = 9;
  if (state.settings.off || real_cudnn.GetVersion() / 10000 != kMajor) {
    return;
  }
  state.active = true;
  state.has_snapshot = state.file.Read(state.settings.snapshot, &state.snapshot_reason);
  if (state.has_snapshot) {
    state.view = state.file.view();
    state.canary = state.settings.canary >= 0 ? state.settings.canary == 1
                                              : DrawCanary(state.view.header().canary_permille);
  }
  pthread_atfork(nullptr, nullptr, InChild);
  if (state.settings.counters[0] != '\0' || state.settings.run_counters[0] != '\0') {
    atexit(AtExit);
  }
}

}  // namespace

const State& GetState() {
  pthread_once(&once, Init);
  return Mutable();
}

bool Killed(const State& state) { return access(state.settings.kill_file, F_OK) == 0; }

}  // namespace convtune::preload
