#include "client/preload/problems.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>

#include "client/preload/counters.h"
#include "client/preload/device.h"
#include "client/preload/engine_config.h"
#include "client/preload/state.h"

namespace convtune::preload {
namespace {

constexpr size_t kBuckets = 16384;
constexpr uint64_t kMaxProblems = 65536;

// A chain only ever grows at its head, so that reading takes no lock.
constinit std::atomic<Problem*> buckets[kBuckets];
constinit std::atomic<uint64_t> problem_count;

Problem* Search(Problem* chain, const snapshot::EnvironmentKey& environment,
                const snapshot::ProblemKey& key, uint64_t hash) {
  for (Problem* problem = chain; problem != nullptr; problem = problem->next) {
    if (problem->hash == hash && problem->key.alignment == key.alignment &&
        snapshot::SameButAlignment(problem->key, key) && problem->environment == environment) {
      return problem;
    }
  }
  return nullptr;
}

// The entry for a problem, of the canary or the stable channel; null with the reason if there is
// none.
const snapshot::SnapshotEntry* LookUp(const snapshot::EnvironmentKey& environment,
                                      const snapshot::ProblemKey& key, uint64_t hash,
                                      snapshot::UnservedReason* why) {
  const State& state = GetState();
  *why = state.has_snapshot ? snapshot::UnservedReason::kNoEnvironment
                            : snapshot::UnservedReason::kNoSnapshot;
  for (const auto channel : {snapshot::Channel::kCanary, snapshot::Channel::kStable}) {
    const bool ours = channel == snapshot::Channel::kStable || state.canary;
    const snapshot::SnapshotSection* section =
        state.has_snapshot && ours ? state.view.FindSection(environment, channel) : nullptr;
    if (section == nullptr) {
      continue;
    }
    *why = snapshot::UnservedReason::kNoEntry;
    const snapshot::SnapshotEntry* entry = state.view.Find(*section, key, hash);
    if (entry != nullptr) {
      return entry;
    }
  }
  return nullptr;
}

// Opened with the first datagram, kept for good; shared with forked children,
// which does no harm: every datagram is whole and names its sender.
constinit std::atomic<int> socket_fd{-1};

int Socket() {
  int fd = socket_fd.load(std::memory_order_acquire);
  if (fd >= 0) {
    return fd;
  }
  fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  int expected = -1;
  if (fd >= 0 && !socket_fd.compare_exchange_strong(expected, fd)) {
    close(fd);
    fd = expected;
  }
  return fd;
}

bool Send(const void* data, size_t size) {
  const State& state = GetState();
  if (!state.settings.report) {
    return false;
  }
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t length = strlen(state.settings.socket);
  const int fd = length < sizeof address.sun_path ? Socket() : -1;
  if (fd >= 0) {
    memcpy(address.sun_path, state.settings.socket, length + 1);
    if (sendto(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&address),
               sizeof address) == static_cast<ssize_t>(size)) {
      Count(Counter::kDatagrams);
      return true;
    }
  }
  Count(Counter::kDropped);
  return false;
}

// Fills the datagram's header in. True if it was sent.
template <typename Datagram>
bool Tell(const Problem& problem, snapshot::DatagramKind kind, Datagram* datagram) {
  snapshot::DatagramHeader& header = datagram->header;
  memcpy(header.magic, snapshot::kDatagramMagic, sizeof header.magic);
  header.version = snapshot::kDatagramVersion;
  header.kind = static_cast<uint16_t>(kind);
  header.bytes = static_cast<uint32_t>(sizeof *datagram);
  header.pid = static_cast<uint32_t>(getpid());
  header.environment = problem.environment;
  header.problem = problem.key;
  return Send(datagram, sizeof *datagram);
}

// A search runs each plan a few times (PyTorch's twice); what is run so often,
// or goes into a CUDA graph after it, is what the program settled on.
constexpr uint64_t kSearched = 3;
constexpr uint64_t kSettled = 16;

// False if cuDNN does not tell of the plan.
bool Describe(cudnnBackendDescriptor_t descriptor, ConfigFacts* facts) {
  Descriptors config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  return config.count() > 0 &&
         Get(descriptor, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
             config.data()) == 1 &&
         ReadConfig(config[0], true, facts) &&
         Get(descriptor, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
             &facts->workspace_bytes) == 1;
}

// Once for each problem. Calls nothing of cuDNN: the stream may be capturing.
void TellPlan(const PlanShadow& plan) {
  const snapshot::ObservedPlanDatagram* facts = plan.facts.known();
  if (facts == nullptr || plan.problem->plan_told.exchange(true)) {
    return;
  }
  snapshot::ObservedPlanDatagram datagram = *facts;
  datagram.plans_built = plan.problem->plans_built.load(std::memory_order_relaxed);
  datagram.executions = plan.executions.load(std::memory_order_relaxed);
  if (Tell(*plan.problem, snapshot::DatagramKind::kObservedPlan, &datagram)) {
    Count(Counter::kLearned);
  }
}

bool IsCaptured(cudnnHandle_t handle) {
  cudaStream_t stream = nullptr;
  return real_cudnn.GetStream(handle, &stream) == CUDNN_STATUS_SUCCESS && IsCapturing(stream);
}

}  // namespace

Problem* FindProblem(const snapshot::EnvironmentKey& environment, const snapshot::ProblemKey& key) {
  const uint64_t hash = snapshot::HashOf(key);
  std::atomic<Problem*>& bucket = buckets[hash % kBuckets];
  Problem* head = bucket.load(std::memory_order_acquire);
  Problem* found = Search(head, environment, key, hash);
  if (found != nullptr || problem_count.load(std::memory_order_relaxed) >= kMaxProblems) {
    return found;
  }
  auto* problem = static_cast<Problem*>(calloc(1, sizeof(Problem)));
  if (problem == nullptr) {
    return nullptr;
  }
  problem->environment = environment;
  problem->key = key;
  problem->hash = hash;
  problem->entry = LookUp(environment, key, hash, &problem->why);
  problem->next = head;
  while (!bucket.compare_exchange_weak(problem->next, problem, std::memory_order_acq_rel)) {
    // Another thread was first in this bucket, maybe with the same problem.
    found = Search(problem->next, environment, key, hash);
    if (found != nullptr) {
      free(problem);
      return found;
    }
  }
  problem_count.fetch_add(1, std::memory_order_relaxed);
  Count(Counter::kProblems);
  return problem;
}

void NoteMiss(Problem* problem, snapshot::UnservedReason reason) {
  CountMiss(reason);
  const uint32_t count = problem->misses.fetch_add(1, std::memory_order_relaxed) + 1;
  if ((count & (count - 1)) == 0) {
    snapshot::MissDatagram datagram = {};
    datagram.reason = static_cast<uint32_t>(reason);
    datagram.count = count - count / 2;  // since the last one that was told
    Tell(*problem, snapshot::DatagramKind::kMiss, &datagram);
  }
}

void TellLegacy(const Problem& problem, snapshot::ObservedLegacyDatagram* datagram) {
  if (Tell(problem, snapshot::DatagramKind::kObservedLegacy, datagram)) {
    Count(Counter::kLearned);
  }
}

void OnPlanFinalized(PlanShadow* plan) {
  if (plan->problem == nullptr) {
    return;
  }
  Count(Counter::kPlans);
  if (plan->served) {
    Count(Counter::kPlansServed);
  }
  plan->problem->plans_built.fetch_add(1, std::memory_order_relaxed);
}

void OnExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t descriptor, PlanShadow* plan) {
  Problem* problem = plan->problem;
  if (problem == nullptr) {
    return;
  }
  if (IsCaptured(handle)) {
    Count(Counter::kCaptured);
    if (plan->served) {
      Count(Counter::kCapturedServed);
    } else {
      TellPlan(*plan);
    }
    return;
  }
  Count(Counter::kExecutions);
  if (plan->served) {
    Count(Counter::kExecutionsServed);
  }
  const uint64_t executions = plan->executions.fetch_add(1, std::memory_order_relaxed) + 1;
  if (executions == 1) {
    problem->plans_run.fetch_add(1, std::memory_order_relaxed);
  }
  if ((executions != kSearched && executions != kSettled) || plan->served ||
      problem->plans_run.load(std::memory_order_relaxed) < 2 || problem->plan_told.load()) {
    return;
  }
  plan->facts.Get([&](ConfigFacts* facts) { return Describe(descriptor, facts); });
  if (executions == kSettled) {
    TellPlan(*plan);
  }
}

}  // namespace convtune::preload
