// A DatagramSocket is the unix socket beside the snapshot, to which programs report.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "proto/base/cancel_token.h"
#include "proto/base/unique_fd.h"

namespace convtune::release {

// Reads on a thread of its own, no more than kMostPerSlice in each slice of
// time: beyond that, and beyond what the kernel holds for a socket, senders find
// it full and drop what they have.
class DatagramSocket {
 public:
  static constexpr int kMostPerSlice = 500;

  struct Options {
    std::string path;
    // Mode 0666 instead of 0660: whoever reaches the folder may report.
    bool open_to_all = false;
    size_t max_bytes = 0;  // longer datagrams arrive cut, one byte longer than this
    // Called with each datagram, from the thread.
    std::function<void(const void* data, size_t size)> receive;
  };

  // Takes the place of a socket that is there. UNAVAILABLE or INVALID_ARGUMENT
  // with the path and why it cannot be had.
  static absl::StatusOr<std::unique_ptr<DatagramSocket>> Create(Options options);
  // Waits for a callback that runs and removes the socket.
  ~DatagramSocket();
  DatagramSocket(const DatagramSocket&) = delete;
  DatagramSocket& operator=(const DatagramSocket&) = delete;

 private:
  DatagramSocket(Options options, UniqueFd socket, std::unique_ptr<CancelToken> stop);
  void Run();

  const Options options_;
  const UniqueFd socket_;
  const std::unique_ptr<CancelToken> stop_;
  std::thread thread_;
};

}  // namespace convtune::release
