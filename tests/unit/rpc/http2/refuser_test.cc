#include "server/rpc/http2/refuser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/time/clock.h"

namespace convtune::rpc::http2 {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kWhy[] = "user 7 has no role here";

std::string Frame(char type, char stream, const std::string& payload) {
  return std::string({0, 0, static_cast<char>(payload.size()), type, 0, 0, 0, 0, stream}) + payload;
}

std::string Greeting() { return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(4, 0, "123456"); }

class RefuserTest : public ::testing::Test {
 protected:
  // The peer's end of a connection that the refuser took.
  UniqueFd Connect() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    refuser_.Take(UniqueFd(ends[0]), kWhy);
    return UniqueFd(ends[1]);
  }
  static void Send(const UniqueFd& fd, const std::string& bytes) {
    EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // What comes until the end or the time.
  static std::string ReadAll(const UniqueFd& fd, absl::Duration most, bool* ended) {
    std::string all;
    char bytes[4096];
    const absl::Time end = absl::Now() + most;
    *ended = false;
    while (absl::Now() < end) {
      const ssize_t got = recv(fd.get(), bytes, sizeof(bytes), 0);
      if (got > 0) all.append(bytes, static_cast<size_t>(got));
      *ended = got == 0 || (got < 0 && errno == ECONNRESET);
      if (*ended) break;
      if (got < 0) absl::SleepFor(absl::Milliseconds(5));
    }
    return all;
  }

  Refuser refuser_;
};

TEST_F(RefuserTest, AnswersACallWithItsWords) {
  const UniqueFd peer = Connect();
  Send(peer, Greeting());
  absl::SleepFor(absl::Milliseconds(50));
  // In two pieces, and with a body behind.
  const std::string call = Frame(1, 5, "headers") + Frame(0, 5, "body");
  Send(peer, call.substr(0, 4));
  absl::SleepFor(absl::Milliseconds(50));
  Send(peer, call.substr(4));
  bool ended = false;
  const std::string reply = ReadAll(peer, absl::Seconds(20), &ended);
  EXPECT_TRUE(ended);
  const std::string settings = Frame(4, 0, "");
  EXPECT_EQ(reply.substr(0, settings.size()), settings);
  // The end of that stream, with the status and the message; a later end of it all.
  EXPECT_THAT(reply, HasSubstr(std::string("\x01\x05\0\0\0\x05\x88", 7)));
  EXPECT_THAT(reply, AllOf(HasSubstr("grpc-status\x01"
                                     "7"),
                           HasSubstr(std::string("grpc-message\x17") + kWhy)));
  // GOAWAY behind stream 5, without an error.
  EXPECT_THAT(reply, HasSubstr(std::string("\x07\0\0\0\0\0\0\0\0\x05\0\0\0\0", 14) + kWhy));
}

TEST_F(RefuserTest, ClosesWhatIsNoHttp2) {
  const UniqueFd peer = Connect();
  Send(peer, "GET / HTTP/1.1\r\n\r\n");
  bool ended = false;
  EXPECT_EQ(ReadAll(peer, absl::Seconds(1), &ended), Frame(4, 0, ""));
  EXPECT_TRUE(ended);
}

TEST_F(RefuserTest, ClosesWhoSaysTooMuch) {
  const UniqueFd peer = Connect();
  Send(peer, Greeting());
  const std::string idle = Frame(6, 0, std::string(120, 'p'));
  bool ended = false;
  // Long before its two seconds are up.
  for (const absl::Time end = absl::Now() + absl::Seconds(1); !ended && absl::Now() < end;) {
    const bool sent = send(peer.get(), idle.data(), idle.size(), MSG_NOSIGNAL) >= 0;
    ended = !sent && errno != EAGAIN;
    if (!sent) absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_TRUE(ended);
}

TEST_F(RefuserTest, ASilentPeerIsClosedAndMoreThanAFewAreNotHeard) {
  std::vector<UniqueFd> silent;
  for (size_t i = 0; i < Refuser::kMostPeers; ++i) silent.push_back(Connect());
  const UniqueFd late = Connect();
  bool ended = false;
  ReadAll(late, absl::Seconds(1), &ended);
  EXPECT_TRUE(ended);
  ReadAll(silent.front(), absl::Milliseconds(500), &ended);
  EXPECT_FALSE(ended);
  ReadAll(silent.front(), absl::Seconds(20), &ended);
  EXPECT_TRUE(ended);
  // There is room again.
  ReadAll(silent.back(), absl::Seconds(20), &ended);
  absl::SleepFor(absl::Milliseconds(100));
  const UniqueFd next = Connect();
  Send(next, Greeting() + Frame(1, 1, "headers"));
  EXPECT_THAT(ReadAll(next, absl::Seconds(20), &ended), HasSubstr(kWhy));
}

}  // namespace
}  // namespace convtune::rpc::http2
