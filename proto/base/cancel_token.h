#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"

namespace convtune {

// A CancelToken is a flag that a thread can wait for together with a socket. Thread-safe.
class CancelToken {
 public:
  static absl::StatusOr<std::unique_ptr<CancelToken>> Create();

  void Cancel();
  // Only while nobody can call Cancel().
  void Reset();
  bool cancelled() const { return cancelled_.load(); }
  // Readable once it is cancelled.
  int fd() const { return fd_.get(); }
  // Returns cancelled(), at once if it is, else after `timeout`.
  bool WaitFor(absl::Duration timeout) const;

 private:
  explicit CancelToken(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;  // eventfd
  std::atomic<bool> cancelled_{false};
};

// Waits until `fd` can be read or its peer is gone: returns true. False if the
// deadline passed or `token` was cancelled first.
bool WaitReadable(int fd, const CancelToken& token, SteadyTime deadline);

}  // namespace convtune
