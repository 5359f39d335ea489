#include "server/rpc/http2/listener.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/replace_file.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/monitoring/log.h"
#include "server/rpc/http2/guarded_reads.h"

namespace convtune::rpc::http2 {
namespace {

constexpr int kBacklog = 512;
// Connections that one socket gives before the others, and Stop, have their turn.
constexpr int kMostInTurn = 64;
constexpr absl::Duration kPause = absl::Milliseconds(20);
constexpr absl::Duration kBetweenNotices = absl::Seconds(10);
constexpr absl::Duration kLookAtFiles = absl::Seconds(10);
constexpr mode_t kOwnerAndGroup = 0660;
constexpr mode_t kEverybody = 0666;
// gRPC closes a connection once it has read the end. It is only late where its threads are busy.
constexpr absl::Duration kEndTimeout = absl::Milliseconds(500);
constexpr absl::Duration kEndPause = absl::Milliseconds(2);

absl::Status CannotListen(const std::string& address, int error) {
  return absl::UnavailableError(
      absl::StrCat("cannot listen on ", address, ": ", std::strerror(error)));
}

// Where an address has its port, in the network's order.
in_port_t* PortIn(sockaddr* address) {
  return address->sa_family == AF_INET6
             ? &reinterpret_cast<sockaddr_in6*>(address)->sin6_port  // NOLINT
             : &reinterpret_cast<sockaddr_in*>(address)->sin_port;   // NOLINT
}

in_port_t PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);  // NOLINT
  return getsockname(fd, generic, &size) == 0 ? *PortIn(generic) : in_port_t{0};
}

// 0, or the error.
int Bind(const addrinfo& info, UniqueFd* out) {
  UniqueFd fd(socket(info.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  // "[::]" takes IPv4 too, as everywhere.
  const int only_v6 = 0;
  if (fd.get() < 0) return errno;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // Its connections inherit it.
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (info.ai_family == AF_INET6) {
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, sizeof(only_v6));
  }
  if (bind(fd.get(), info.ai_addr, info.ai_addrlen) != 0) return errno;
  if (listen(fd.get(), kBacklog) != 0) return errno;
  *out = std::move(fd);
  return 0;
}

}  // namespace

struct Listener::Socket {
  UniqueFd fd;
  Take take;
  bool important = false;  // its peers may use the last of the connections
  std::string path;        // of a unix socket
  std::optional<FileMark> mark;
  bool lost = false;  // as last seen

  bool InPlace() const {
    const std::optional<FileMark> found = MarkOf(path);
    return !mark || (found && found->IsSameFile(*mark));
  }
};

Listener::Listener(int max_fd)
    : max_fd_(max_fd),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      spare_(open("/dev/null", O_RDONLY | O_CLOEXEC)) {}

Listener::~Listener() { Stop(); }

absl::StatusOr<std::string> Listener::Add(const ListenAddress& address, const Take& take) {
  if (!address.unix_socket) return AddTcp(address, take);
  RETURN_IF_ERROR(PrepareSocketPath(address.target));
  RETURN_IF_ERROR(AddUnix(address, take));
  return Concat(RoleName(address.role), "=", address.ToText());
}

absl::Status Listener::AddUnix(const ListenAddress& address, const Take& take) {
  const std::string& path = address.target;
  auto made = std::make_unique<Socket>();
  made->take = take;
  made->important = address.role == Role::kAdmin;
  made->path = path;
  made->fd = UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (made->fd.get() < 0) return CannotListen(path, errno);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof(name.sun_path) - 1);
  // The file never exists with more permissions. The mask is the whole process's.
  const mode_t before = umask(0117);
  const int bound =
      bind(made->fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name));  // NOLINT
  const int error = errno;
  umask(before);
  if (bound != 0) return CannotListen(path, error);
  const mode_t mode = address.role == Role::kRead ? kEverybody : kOwnerAndGroup;
  if (chmod(path.c_str(), mode) != 0 || listen(made->fd.get(), kBacklog) != 0) {
    return CannotListen(path, errno);
  }
  made->mark = MarkOf(path);
  sockets_.push_back(std::move(made));
  return absl::OkStatus();
}

absl::StatusOr<std::string> Listener::AddTcp(const ListenAddress& address, const Take& take) {
  const std::string& host_port = address.target;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found);
      error != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", host_port, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> infos(found, &freeaddrinfo);
  in_port_t bound_port = 0;
  int unusable = 0;
  for (addrinfo* info = infos.get(); info != nullptr; info = info->ai_next) {
    if (bound_port != 0) *PortIn(info->ai_addr) = bound_port;
    auto made = std::make_unique<Socket>();
    made->take = take;
    const int error = Bind(*info, &made->fd);
    if (error == EAFNOSUPPORT || error == EADDRNOTAVAIL) {
      // A machine may know a name's IPv6 address and have no IPv6.
      unusable = error;
      continue;
    }
    if (error != 0) return CannotListen(host_port, error);
    bound_port = PortOf(made->fd.get());
    sockets_.push_back(std::move(made));
  }
  if (bound_port == 0) return CannotListen(host_port, unusable);
  return absl::StrCat(host_port.substr(0, host_port.rfind(':')), ":", ntohs(bound_port));
}

void Listener::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void Listener::Stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
    thread_.join();
  }
  lost_sockets_ = 0;
  for (const std::unique_ptr<Socket>& socket : sockets_) {
    if (socket->mark && socket->InPlace()) unlink(socket->path.c_str());
  }
  sockets_.clear();
}

void Listener::Loop() {
  std::vector<pollfd> waiting = {{wake_.get(), POLLIN, 0}};
  for (const std::unique_ptr<Socket>& socket : sockets_) {
    waiting.push_back({socket->fd.get(), POLLIN, 0});
  }
  SteadyTime next_look = SteadyTime::Now();
  while (true) {
    if (SteadyTime::Now() >= next_look) {
      LookAtFiles();
      next_look = SteadyTime::Now() + kLookAtFiles;
    }
    if (poll(waiting.data(), waiting.size(), absl::ToInt64Milliseconds(kLookAtFiles)) < 0 &&
        errno != EINTR) {
      log::Error("listening: $0", std::strerror(errno));
      absl::SleepFor(kPause);
      continue;
    }
    if (waiting[0].revents != 0) return;
    for (size_t i = 1; i < waiting.size(); ++i) {
      if (waiting[i].revents != 0) AcceptSome(*sockets_[i - 1]);
    }
  }
}

void Listener::LookAtFiles() {
  int64_t lost = 0;
  for (const std::unique_ptr<Socket>& socket : sockets_) {
    const bool is_lost = !socket->InPlace();
    lost += is_lost ? 1 : 0;
    if (is_lost == socket->lost) continue;
    socket->lost = is_lost;
    if (is_lost) {
      log::Error(
          "$0 was removed or replaced: no client finds this daemon there until it is "
          "started again",
          socket->path);
    } else {
      log::Info("$0 is in its place again", socket->path);
    }
  }
  lost_sockets_ = lost;
}

void Listener::AcceptSome(const Socket& socket) {
  const auto notice = [](const char* what) {
    static SteadyTime last = SteadyTime::InfinitePast();  // one thread alone is here
    if (SteadyTime::Now() - last < kBetweenNotices) return;
    last = SteadyTime::Now();
    log::Warn("connections are refused: $0", what);
  };
  for (int i = 0; i < kMostInTurn; ++i) {
    const int fd = accept4(socket.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EMFILE || errno == ENFILE) {
        notice("the process has no file left");
        spare_ = UniqueFd();
        UniqueFd(accept4(socket.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));  // closed at once
        spare_ = UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
        absl::SleepFor(kPause);
      } else if (errno != EAGAIN && errno != EWOULDBLOCK) {
        notice(std::strerror(errno));
        absl::SleepFor(kPause);
      }
      return;
    }
    if (fd >= max_fd_ || (fd >= max_fd_ / 8 * 7 && !socket.important)) {
      notice("there are too many");
      close(fd);
      continue;
    }
    if (static_cast<size_t>(fd) < cookies_.size()) cookies_[static_cast<size_t>(fd)] = CookieOf(fd);
    socket.take(fd);
  }
}

void Listener::ForEachOpen(const std::function<void(int fd)>& use) const {
  for (size_t i = 0; i < cookies_.size(); ++i) {
    const int fd = static_cast<int>(i);
    // The number may be another's by now: then the cookie is, too.
    if (cookies_[i] != 0 && CookieOf(fd) == cookies_[i]) use(fd);
  }
}

void Listener::EndConnections() const {
  const SteadyTime end = SteadyTime::Now() + kEndTimeout;
  ForEachOpen([](int fd) { shutdown(fd, SHUT_RD); });
  for (bool open = true; open && SteadyTime::Now() < end; absl::SleepFor(kEndPause)) {
    open = false;
    ForEachOpen([&open](int) { open = true; });
  }
}

int RaiseFileLimit(int wanted, int reserve) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted - reserve;
  const auto target = static_cast<rlim_t>(wanted);
  if (limit.rlim_cur < target) {
    limit.rlim_cur = std::min(target, limit.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
  }
  // Where there are few, half of them.
  const int usable = static_cast<int>(std::min(target, limit.rlim_cur));
  return std::max(usable - reserve, usable / 2);
}

}  // namespace convtune::rpc::http2
