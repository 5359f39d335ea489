#include "server/rpc/http2/guarded_reads.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

namespace convtune::rpc::http2 {
namespace {

// What no server of HTTP/2 goes on with: a block of headers without an end.
const std::string kEndless = std::string(24, 'p') + std::string("\x01\x00\x01\x01\0\0\0\0\1", 9);

std::array<int, 2> Pair() {
  std::array<int, 2> ends{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
  return ends;
}

// What reading at `fd` gives of `bytes` that were written at `peer`.
ssize_t Read(int fd, int peer, const std::string& bytes) {
  EXPECT_EQ(write(peer, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  std::array<char, 256> buffer{};
  iovec part{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  return recvmsg(fd, &message, 0);
}

TEST(GuardedReadsTest, AConnectionThatBreaksARuleLooksClosed) {
  const auto [server, client] = Pair();
  GuardReads(server);
  errno = 0;
  EXPECT_EQ(Read(server, client, kEndless), -1);
  EXPECT_EQ(errno, ECONNRESET);
  close(server);
  close(client);
}

TEST(GuardedReadsTest, ASocketThatTakesOverTheNumberIsLeftAlone) {
  const auto [server, client] = Pair();
  GuardReads(server);
  EXPECT_EQ(Read(server, client, std::string(24, 'p')), 24);
  close(server);
  close(client);
  const auto [next, peer] = Pair();
  ASSERT_EQ(next, server) << "the lowest number that is free";
  const auto size = static_cast<ssize_t>(kEndless.size());
  EXPECT_EQ(Read(next, peer, kEndless.substr(24)), size - 24);
  EXPECT_EQ(Read(next, peer, kEndless), size);
  close(next);
  close(peer);
}

}  // namespace
}  // namespace convtune::rpc::http2
