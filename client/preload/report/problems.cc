#include "client/preload/report/problems.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>

#include "client/preload/process/counters.h"
#include "client/preload/process/mutex.h"
#include "client/preload/state/state.h"

namespace convtune::preload::report {
namespace {

constexpr size_t kBuckets = 16384;
constexpr uint64_t kMaxProblems = 65536;

// A chain only ever grows at its head, so that reading takes no lock.
constinit std::atomic<Problem*> buckets[kBuckets];
constinit std::atomic<uint64_t> problem_count;
constinit process::Mutex mutex;

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

void FillHeader(const Problem& problem, snapshot::DatagramKind kind, size_t bytes,
                snapshot::DatagramHeader* header) {
  memcpy(header->magic, snapshot::kDatagramMagic, sizeof header->magic);
  header->version = snapshot::kDatagramVersion;
  header->kind = static_cast<uint16_t>(kind);
  header->bytes = static_cast<uint32_t>(bytes);
  header->pid = static_cast<uint32_t>(getpid());
  header->environment = problem.environment;
  header->problem = problem.key;
}

bool Send(const void* data, size_t size) {
  const state::State& state = state::GetState();
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
      process::Count(&process::counters.datagrams);
      return true;
    }
  }
  process::Count(&process::counters.dropped);
  return false;
}

void TellMiss(const Problem& problem, snapshot::UnservedReason reason, uint32_t count) {
  snapshot::MissDatagram datagram = {};
  FillHeader(problem, snapshot::DatagramKind::kMiss, sizeof datagram, &datagram.header);
  datagram.reason = static_cast<uint32_t>(reason);
  datagram.count = count;
  Send(&datagram, sizeof datagram);
}

}  // namespace

Problem* FindProblem(const snapshot::EnvironmentKey& environment, const snapshot::ProblemKey& key,
                     uint64_t hash) {
  std::atomic<Problem*>& bucket = buckets[hash % kBuckets];
  Problem* found = Search(bucket.load(std::memory_order_acquire), environment, key, hash);
  if (found != nullptr) {
    return found;
  }
  const state::State& state = state::GetState();
  const process::Locked locked(&mutex);
  Problem* head = bucket.load(std::memory_order_relaxed);
  found = Search(head, environment, key, hash);
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
  problem->why = snapshot::UnservedReason::kNoSnapshot;
  if (state.has_snapshot) {
    bool environment_known = false;
    problem->entry = state::LookUp(state, environment, key, hash, &environment_known);
    problem->why = environment_known ? snapshot::UnservedReason::kNoEntry
                                     : snapshot::UnservedReason::kNoEnvironment;
  }
  problem->next = head;
  problem_count.fetch_add(1, std::memory_order_relaxed);
  process::Count(&process::counters.problems);
  bucket.store(problem, std::memory_order_release);
  return problem;
}

void NoteMiss(Problem* problem, snapshot::UnservedReason reason) {
  process::CountMiss(reason);
  const uint32_t count = problem->misses.fetch_add(1, std::memory_order_relaxed) + 1;
  if ((count & (count - 1)) == 0) {
    const uint32_t before = problem->missed_sent.exchange(count, std::memory_order_relaxed);
    TellMiss(*problem, reason, count > before ? count - before : 1);
  }
}

bool TellPlan(const Problem& problem, snapshot::ObservedPlanDatagram* datagram) {
  FillHeader(problem, snapshot::DatagramKind::kObservedPlan, sizeof *datagram, &datagram->header);
  return Send(datagram, sizeof *datagram);
}

bool TellLegacy(const Problem& problem, snapshot::ObservedLegacyDatagram* datagram) {
  FillHeader(problem, snapshot::DatagramKind::kObservedLegacy, sizeof *datagram, &datagram->header);
  return Send(datagram, sizeof *datagram);
}

}  // namespace convtune::preload::report
