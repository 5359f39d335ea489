// Sockets that are listened on by ourselves and not by gRPC: its own listener
// (1.51) does not tell who connects, and stops for good when the process runs
// out of files, which any client can bring about (CVE-2023-4785).
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace convtune::rpc::http2 {

// Accepts connections on a thread of its own and gives them away. The number of
// connections is bounded: a new file's number says how many are open at least,
// so one that is too high is closed at once. Not thread-safe.
class Listener {
 public:
  // Takes an address's connections, which do not block. `important`: its peers may use
  // the last of the connections.
  struct Target {
    bool important = false;
    std::function<void(int fd)> take;
  };

  // `max_fd`: connections whose number is as high are refused, those that are
  // not important from seven eighths of it on.
  explicit Listener(int max_fd);
  // Stops.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // UNAVAILABLE: the address cannot be listened on. A unix socket gets `mode`
  // whatever the umask is, and must not be there; a port of 0 is any.
  absl::Status AddUnix(const std::string& path, mode_t mode, Target target);
  absl::StatusOr<std::string> AddTcp(const std::string& host_port, Target target);

  // Accepts from now on; connections that were made before wait till then.
  void Start();
  // Accepts no more, closes the sockets and removes those files that are still
  // ours. Idempotent.
  void Stop();

 private:
  struct Socket;
  void Loop();
  void AcceptSome(const Socket& socket);

  const int max_fd_;
  UniqueFd wake_;
  UniqueFd spare_;  // given up to close a connection when there is no other file
  std::vector<std::unique_ptr<Socket>> sockets_;
  std::thread thread_;
};

// Raises the limit of open files as far as `wanted` and may be, and returns the
// number from which on connections are refused: `reserve` below the limit.
int RaiseFileLimit(int wanted, int reserve);

}  // namespace convtune::rpc::http2
