#include "client/preload/state/state.h"

#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include <atomic>
#include <new>

#include "client/preload/process/counters.h"
#include "client/preload/process/mutex.h"
#include "client/preload/process/real_cudnn.h"
#include "client/preload/shadow/shadow.h"

namespace convtune::preload::state {
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
      process::WriteCounters(path, kPolicyNames[static_cast<int>(state.settings.policy)],
                             state.has_snapshot ? "valid" : state.snapshot_reason,
                             state.has_snapshot ? state.view.header().release : 0);
    }
  }
}

int FindCudnn(dl_phdr_info* info, size_t /*size*/, void* /*data*/) {
  return info->dlpi_name != nullptr && process::IsCudnnLibrary(info->dlpi_name) ? 1 : 0;
}

// At the end of a process that `convtune run` started and that loaded cuDNN and never called a
// hook: nobody else would say so.
__attribute__((destructor)) void TellBypassed() {
  if (initialised.load(std::memory_order_relaxed)) {
    return;
  }
  const char* path = getenv(kRunCountersVariable);
  if (path != nullptr && path[0] != '\0' && dl_iterate_phdr(FindCudnn, nullptr) != 0) {
    process::WriteBypassed(path);
  }
}

void InChild() {
  process::UnlockAll();
  shadow::OpenShadowLocks();
  process::ResetCounters();
}

// By process: a number that the system draws.
bool DrawCanary(uint32_t permille) {
  uint32_t number = 0;
  return permille > 0 && getrandom(&number, sizeof number, GRND_NONBLOCK) == sizeof number &&
         number % 1000 < permille;
}

void Init() {
  State& state = *new (storage) State;
  initialised.store(true, std::memory_order_relaxed);
  ReadSettings(&state.settings);
  const process::RealCudnn& real = process::Real();
  // The attributes' numbers are those of cuDNN 9.
  constexpr size_t kMajor = 9;
  if (state.settings.off || real.GetVersion == nullptr || real.GetVersion() / 10000 != kMajor) {
    return;
  }
  state.active = true;
  state.has_snapshot = state.file.Read(state.settings.snapshot, &state.snapshot_reason);
  if (state.has_snapshot) {
    state.view = state.file.view();
    state.canary = state.settings.canary >= 0 ? state.settings.canary == 1
                                              : DrawCanary(state.view.header().canary_permille);
  }
  pthread_atfork(process::LockAll, process::UnlockAll, InChild);
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

const snapshot::SnapshotEntry* LookUp(const State& state,
                                      const snapshot::EnvironmentKey& environment,
                                      const snapshot::ProblemKey& key, uint64_t hash,
                                      bool* environment_known) {
  *environment_known = false;
  if (state.canary) {
    const snapshot::SnapshotSection* canary =
        state.view.FindSection(environment, snapshot::Channel::kCanary);
    if (canary != nullptr) {
      *environment_known = true;
      const snapshot::SnapshotEntry* entry = state.view.Find(*canary, key, hash);
      if (entry != nullptr) {
        return entry;
      }
    }
  }
  const snapshot::SnapshotSection* stable =
      state.view.FindSection(environment, snapshot::Channel::kStable);
  if (stable == nullptr) {
    return nullptr;
  }
  *environment_known = true;
  return state.view.Find(*stable, key, hash);
}

}  // namespace convtune::preload::state
