// A Refuser tells peers of a unix socket that have no role why their calls are
// refused, and closes their connections.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"

namespace convtune::rpc::http2 {

// Such peers may be anybody, so gRPC never sees their bytes. The Refuser knows just as
// much of HTTP/2 as it takes to find the numbers of calls: it answers each with
// PERMISSION_DENIED and a message. After two seconds or 128 KiB it ends the connection
// with GOAWAY. At most 16 peers are heard at a time; more are closed unread.
// Thread-safe; one thread of its own.
class Refuser {
 public:
  static constexpr size_t kMostPeers = 16;

  Refuser();
  ~Refuser();
  Refuser(const Refuser&) = delete;
  Refuser& operator=(const Refuser&) = delete;

  // `message`: of printable ASCII without '%'.
  void Take(UniqueFd fd, const std::string& message);

 private:
  struct Peer;
  void Loop();
  // False: the connection is to be closed.
  static bool Hear(Peer* peer);
  static bool Answer(Peer* peer);
  static void SayGoodbye(const Peer& peer);

  UniqueFd wake_;
  Mutex mutex_;
  std::vector<Peer> arrived_ GUARDED_BY(mutex_);
  size_t count_ GUARDED_BY(mutex_) = 0;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace convtune::rpc::http2
