#include "client/preload/report/report.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>

#include "client/preload/process/counters.h"
#include "client/preload/state/state.h"

namespace convtune::preload::report {
namespace {

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

}  // namespace

void TellMiss(const Problem& problem, snapshot::UnservedReason reason, uint32_t count) {
  snapshot::MissDatagram datagram = {};
  FillHeader(problem, snapshot::DatagramKind::kMiss, sizeof datagram, &datagram.header);
  datagram.reason = static_cast<uint32_t>(reason);
  datagram.count = count;
  Send(&datagram, sizeof datagram);
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
