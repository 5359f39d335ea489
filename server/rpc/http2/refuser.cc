#include "server/rpc/http2/refuser.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/time/clock.h"

namespace convtune::rpc::http2 {
namespace {

constexpr absl::Duration kRefusalTimeout = absl::Seconds(2);
// More than HTTP/2 lets a peer send of requests that nobody takes (64 KiB): closed
// before it has read its answers, it would not look at them.
constexpr size_t kMostBytes = 128 << 10;

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr size_t kFrameHeader = 9;
constexpr uint8_t kHeadersFrame = 1;
constexpr uint8_t kSettingsFrame = 4;
constexpr uint8_t kGoAwayFrame = 7;
constexpr uint8_t kAckFlag = 1;
constexpr uint8_t kEndStreamAndHeaders = 5;

void AppendNumber(uint32_t number, std::string* out) {
  for (int shift = 24; shift >= 0; shift -= 8) {
    out->push_back(static_cast<char>((number >> shift) & 0xFF));
  }
}

void AppendFrame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload,
                 std::string* out) {
  const std::string length = [&payload] {
    std::string four;
    AppendNumber(static_cast<uint32_t>(payload.size()), &four);
    return four;
  }();
  out->append(length, 1);
  out->push_back(static_cast<char>(type));
  out->push_back(static_cast<char>(flags));
  AppendNumber(stream, out);
  out->append(payload);
}

// HPACK's string, without Huffman's code: its length in 7 bits, or more of them.
void AppendText(std::string_view text, std::string* out) {
  constexpr size_t kFits = 127;
  if (text.size() < kFits) {
    out->push_back(static_cast<char>(text.size()));
  } else {
    out->push_back(static_cast<char>(kFits));
    size_t rest = text.size() - kFits;
    for (; rest >= 128; rest /= 128) out->push_back(static_cast<char>(rest % 128 + 128));
    out->push_back(static_cast<char>(rest));
  }
  out->append(text);
}

// A field that is not to be put into the peer's table.
void AppendField(std::string_view name, std::string_view value, std::string* out) {
  out->push_back(0);
  AppendText(name, out);
  AppendText(value, out);
}

// gRPC's answer to a call that has no response.
std::string Trailers(const std::string& message) {
  std::string block = "\x88";  // :status: 200
  AppendField("content-type", "application/grpc", &block);
  AppendField("grpc-status", "7", &block);  // PERMISSION_DENIED
  AppendField("grpc-message", message, &block);
  return block;
}

bool SendAll(int fd, const std::string& bytes) {
  // A socket that nobody wrote to has room for it.
  return send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

}  // namespace

struct Refuser::Peer {
  UniqueFd fd;
  std::string message;
  absl::Time end;
  std::string unread;  // behind what was understood
  size_t skip = 0;     // rest of a frame's payload
  size_t bytes = 0;
  bool greeted = false;  // its preface was there
  uint32_t last_call = 0;
};

Refuser::Refuser() : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), thread_([this] { Loop(); }) {}

Refuser::~Refuser() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
  thread_.join();
}

void Refuser::Take(UniqueFd fd, const std::string& message) {
  std::string settings;
  AppendFrame(kSettingsFrame, 0, 0, "", &settings);
  if (!SendAll(fd.get(), settings)) return;
  Peer peer;
  peer.fd = std::move(fd);
  peer.message = message;
  peer.end = absl::Now() + kRefusalTimeout;
  {
    MutexLock lock(mutex_);
    if (count_ == kMostPeers) return;
    ++count_;
    arrived_.push_back(std::move(peer));
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
}

bool Refuser::Hear(Peer* peer) {
  char bytes[4096];
  while (true) {
    const ssize_t got = recv(peer->fd.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (got == 0) return false;
    peer->bytes += static_cast<size_t>(got);
    if (peer->bytes > kMostBytes) return false;
    peer->unread.append(bytes, static_cast<size_t>(got));
    if (!Answer(peer)) return false;
  }
}

bool Refuser::Answer(Peer* peer) {
  std::string& unread = peer->unread;
  if (!peer->greeted) {
    const size_t known = std::min(unread.size(), kPreface.size());
    if (unread.compare(0, known, kPreface, 0, known) != 0) return false;
    if (known < kPreface.size()) return true;
    unread.erase(0, known);
    peer->greeted = true;
  }
  std::string reply;
  while (true) {
    const size_t skipped = std::min(peer->skip, unread.size());
    unread.erase(0, skipped);
    peer->skip -= skipped;
    if (unread.size() < kFrameHeader) break;
    const auto at = [&unread](size_t i) {
      return static_cast<uint32_t>(static_cast<unsigned char>(unread[i]));
    };
    peer->skip = at(0) << 16 | at(1) << 8 | at(2);
    const uint32_t stream = (at(5) & 0x7F) << 24 | at(6) << 16 | at(7) << 8 | at(8);
    if (at(3) == kSettingsFrame && (at(4) & kAckFlag) == 0) {
      AppendFrame(kSettingsFrame, kAckFlag, 0, "", &reply);
    }
    if (at(3) == kHeadersFrame) {
      AppendFrame(kHeadersFrame, kEndStreamAndHeaders, stream, Trailers(peer->message), &reply);
      peer->last_call = std::max(peer->last_call, stream);
    }
    unread.erase(0, kFrameHeader);
  }
  return reply.empty() || SendAll(peer->fd.get(), reply);
}

void Refuser::SayGoodbye(const Peer& peer) {
  std::string farewell;
  AppendNumber(peer.last_call, &farewell);
  AppendNumber(0, &farewell);  // NO_ERROR
  farewell.append(peer.message);
  std::string frame;
  AppendFrame(kGoAwayFrame, 0, 0, farewell, &frame);
  SendAll(peer.fd.get(), frame);
}

void Refuser::Loop() {
  std::vector<Peer> peers;
  std::vector<pollfd> waiting;
  while (true) {
    waiting.assign(1, {wake_.get(), POLLIN, 0});
    absl::Time next = absl::InfiniteFuture();
    for (const Peer& peer : peers) {
      waiting.push_back({peer.fd.get(), POLLIN, 0});
      next = std::min(next, peer.end);
    }
    const int timeout = next == absl::InfiniteFuture()
                            ? -1
                            : static_cast<int>(std::max<int64_t>(
                                  0, absl::ToInt64Milliseconds(next - absl::Now()))) +
                                  1;
    poll(waiting.data(), waiting.size(), timeout);
    const absl::Time now = absl::Now();
    size_t i = 0;
    const size_t closed = std::erase_if(peers, [&](Peer& peer) {
      const bool readable = waiting[++i].revents != 0;
      if (readable && !Hear(&peer)) return true;
      if (now < peer.end) return false;
      SayGoodbye(peer);
      return true;
    });
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t read_bytes = read(wake_.get(), &count, sizeof(count));
    MutexLock lock(mutex_);
    if (stopping_) return;
    count_ -= closed;
    for (Peer& peer : arrived_) peers.push_back(std::move(peer));
    arrived_.clear();
  }
}

}  // namespace convtune::rpc::http2
