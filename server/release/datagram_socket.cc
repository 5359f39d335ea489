#include "server/release/datagram_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/replace_file.h"
#include "proto/base/status_macros.h"

namespace convtune::release {
namespace {

constexpr absl::Duration kSlice = absl::Milliseconds(100);
constexpr int kReceiveBuffer = 256 << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<DatagramSocket>> DatagramSocket::Create(Options options) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& path = options.path;
  if (path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": a socket's path must be shorter than ",
                                                   sizeof address.sun_path, " bytes"));
  }
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return FileError(path, "making the socket");
  ASSIGN_OR_RETURN(std::unique_ptr<CancelToken> stop, CancelToken::Create());
  struct stat there {};
  if (lstat(path.c_str(), &there) == 0) {
    if (!S_ISSOCK(there.st_mode)) {
      return absl::UnavailableError(absl::StrCat(path, ": is there and is no socket"));
    }
    // The state directory's lock says that no other daemon uses it.
    unlink(path.c_str());
  }
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &kReceiveBuffer, sizeof kReceiveBuffer);
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return FileError(path, "binding the socket");
  }
  if (chmod(path.c_str(), options.open_to_all ? 0666 : 0660) != 0) {
    return FileError(path, "setting the socket's mode");
  }
  return std::unique_ptr<DatagramSocket>(
      new DatagramSocket(std::move(options), std::move(socket), std::move(stop)));
}

DatagramSocket::DatagramSocket(Options options, UniqueFd socket, std::unique_ptr<CancelToken> stop)
    : options_(std::move(options)), socket_(std::move(socket)), stop_(std::move(stop)) {
  thread_ = std::thread([this] { Run(); });
}

DatagramSocket::~DatagramSocket() {
  stop_->Cancel();
  thread_.join();
  unlink(options_.path.c_str());
}

void DatagramSocket::Run() {
  std::vector<char> buffer(options_.max_bytes + 1);
  while (WaitReadable(socket_.get(), *stop_, SteadyTime::InfiniteFuture())) {
    const SteadyTime slice_end = SteadyTime::Now() + kSlice;
    int taken = 0;
    while (taken < kMostPerSlice && WaitReadable(socket_.get(), *stop_, slice_end)) {
      const ssize_t size = recv(socket_.get(), buffer.data(), buffer.size(), 0);
      if (size < 0) continue;
      ++taken;
      options_.receive(buffer.data(), static_cast<size_t>(size));
    }
    // Over its share, the socket is left alone until the slice ends.
    if (taken == kMostPerSlice) stop_->WaitFor(slice_end - SteadyTime::Now());
  }
}

}  // namespace convtune::release
