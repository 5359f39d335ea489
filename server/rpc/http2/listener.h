// Sockets that are listened on by ourselves and not by gRPC: its own listener
// (1.51) does not tell who connects, and stops for good when the process runs
// out of files, which any client can bring about (CVE-2023-4785).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"
#include "server/rpc/http2/limits.h"
#include "server/rpc/http2/listen_address.h"

namespace convtune::rpc::http2 {

// Accepts connections on a thread of its own and gives them away. The number of
// connections is bounded: a new file's number says how many are open at least,
// so one that is too high is closed at once. Not thread-safe.
class Listener {
 public:
  // Takes a connection, which does not block.
  using Take = std::function<void(int fd)>;

  // Connections whose descriptor is `max_fd` or higher are refused; those to other sockets than the
  // admins', and those over TCP, from seven eighths of it on.
  explicit Listener(int max_fd);
  // Stops.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Listens, and returns the address as it is listened on: a port of 0 is replaced by the
  // actual one. A unix socket gets mode 0660, or 0666 where whoever connects has the role read,
  // whatever the umask is. ALREADY_EXISTS: somebody listens on the socket; UNAVAILABLE: the address
  // cannot be listened on; as PrepareSocketPath.
  absl::StatusOr<std::string> Add(const ListenAddress& address, const Take& take);

  // Accepts from now on; connections that were made before wait till then.
  void Start();
  // Accepts no more, closes the sockets and removes those files that are still
  // ours. Idempotent.
  void Stop();
  // Ends the connections that there are, for gRPC as if the clients had gone, and
  // waits a moment for gRPC to close them: clients get UNAVAILABLE for calls without an
  // answer. grpc::Server::Shutdown alone gives CANCELLED without a message to calls
  // that arrive while it runs. After Stop.
  void EndConnections() const;

  // Unix sockets whose files were not in their place at the last look, of the listener that
  // looked last. Thread-safe.
  static int64_t lost_sockets() { return lost_sockets_; }

 private:
  struct Socket;
  absl::Status AddUnix(const ListenAddress& address, const Take& take);
  absl::StatusOr<std::string> AddTcp(const ListenAddress& address, const Take& take);
  void Loop();
  // Says which unix sockets have lost their file.
  void LookAtFiles();
  void AcceptSome(const Socket& socket);
  void ForEachOpen(const std::function<void(int fd)>& use) const;

  static inline std::atomic<int64_t> lost_sockets_{0};
  const int max_fd_;
  UniqueFd wake_;
  UniqueFd spare_;  // given up to close a connection when there is no other file
  std::vector<std::unique_ptr<Socket>> sockets_;
  std::array<uint64_t, kMaxConnections + kReservedFiles> cookies_{};  // of connections, by fd
  std::thread thread_;
};

// Raises the process's limit of open files towards `wanted`, as far as the hard limit lets it, and
// returns a Listener's `max_fd`: `reserve` below the limit.
int RaiseFileLimit(int wanted, int reserve);

}  // namespace convtune::rpc::http2
