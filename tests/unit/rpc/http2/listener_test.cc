#include "server/rpc/http2/listener.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <string>

#include "proto/monitoring/log.h"
#include "tests/unit/temp_dir.h"

namespace convtune::rpc::http2 {
namespace {

UniqueFd NewSocket() { return UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

bool Connect(const UniqueFd& end, const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return connect(end.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

TEST(Listener, ASocketWhoseConnectionsNeverEndKeepsNeitherTheOthersNorStopWaiting) {
  const TempDir dir;
  const std::string flooded = dir.path("flooded");
  const std::string other = dir.path("other");
  Listener listener(1 << 16);
  // Each connection that is accepted brings the next one.
  const auto again = [&flooded](int fd) {
    close(fd);
    EXPECT_TRUE(Connect(NewSocket(), flooded));
  };
  std::promise<void> taken;
  ASSERT_TRUE(listener.Add({{true, flooded}, Role::kTune}, again).ok());
  const auto take = [&taken](int fd) {
    close(fd);
    taken.set_value();
  };
  ASSERT_TRUE(listener.Add({{true, other}, Role::kAdmin}, take).ok());
  ASSERT_TRUE(Connect(NewSocket(), flooded));
  const UniqueFd end = NewSocket();
  ASSERT_TRUE(Connect(end, other));
  listener.Start();
  EXPECT_EQ(taken.get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
  listener.Stop();
}

TEST(Listener, AConnectionIsClosedWhenTheProcessHasNoFileLeft) {
  const TempDir dir;
  const std::string path = dir.path("socket");
  Listener listener(1 << 16);
  ASSERT_TRUE(listener.Add({{true, path}, Role::kAdmin}, [](int fd) { close(fd); }).ok());
  const UniqueFd end = NewSocket();
  const timeval minute{60, 0};
  setsockopt(end.get(), SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof(minute));
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  // The first number that is not open: all below it are.
  const rlimit none{static_cast<rlim_t>(NewSocket().get()), limit.rlim_max};
  // UndefinedBehaviorSanitizer opens files where it sees a logger for the first time.
  log::Warn("this test takes all files");
  listener.Start();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_TRUE(Connect(end, path));
  char byte = 0;
  EXPECT_EQ(read(end.get(), &byte, 1), 0);
  listener.Stop();
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

}  // namespace
}  // namespace convtune::rpc::http2
