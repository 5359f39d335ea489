#include "proto/base/framing.h"
#include "proto/base/clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

namespace convtune {
namespace {

class FramingTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends_), 0); }
  void TearDown() override {
    CloseEnd(0);
    CloseEnd(1);
  }
  void CloseEnd(int i) {
    if (ends_[i] >= 0) {
      close(ends_[i]);
      ends_[i] = -1;
    }
  }
  void SendRaw(const std::string& bytes) {
    ASSERT_EQ(write(ends_[0], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }

  int ends_[2] = {-1, -1};
};

TEST_F(FramingTest, MessagesArriveWholeAndInOrder) {
  ASSERT_TRUE(WriteFrame(ends_[0], "first").ok());
  ASSERT_TRUE(WriteFrame(ends_[0], "").ok());
  ASSERT_TRUE(WriteFrame(ends_[0], std::string("with\0zero", 9)).ok());
  EXPECT_EQ(*ReadFrame(ends_[1], SteadyTime::InfiniteFuture()), "first");
  EXPECT_EQ(*ReadFrame(ends_[1], SteadyTime::InfiniteFuture()), "");
  EXPECT_EQ(*ReadFrame(ends_[1], SteadyTime::InfiniteFuture()), std::string("with\0zero", 9));
}

TEST_F(FramingTest, LengthIsFourLittleEndianBytes) {
  ASSERT_TRUE(WriteFrame(ends_[0], std::string(0x0102, 'x')).ok());
  unsigned char header[4] = {};
  ASSERT_EQ(read(ends_[1], header, 4), 4);
  EXPECT_THAT(header, testing::ElementsAre(2, 1, 0, 0));
}

TEST_F(FramingTest, MessageLargerThanTheSocketBufferArrives) {
  const std::string message(8 << 20, 'm');
  std::thread writer([&] { EXPECT_TRUE(WriteFrame(ends_[0], message).ok()); });
  const absl::StatusOr<std::string> got = ReadFrame(ends_[1], SteadyTime::InfiniteFuture());
  writer.join();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, message);
}

TEST_F(FramingTest, DeadlineEndsAReadWithoutAMessageAndWithHalfAMessage) {
  for (const std::string& half : {std::string(), std::string("\x05\0\0\0ab", 6)}) {
    SendRaw(half);
    EXPECT_EQ(ReadFrame(ends_[1], SteadyTime::Now() + absl::Milliseconds(20)).status().code(),
              absl::StatusCode::kDeadlineExceeded);
  }
}

TEST_F(FramingTest, MessageThatIsThereIsReadAfterTheDeadline) {
  ASSERT_TRUE(WriteFrame(ends_[0], "there").ok());
  const absl::StatusOr<std::string> got = ReadFrame(ends_[1], SteadyTime::InfinitePast());
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, "there");
}

TEST_F(FramingTest, CloseBetweenMessagesIsOutOfRange) {
  CloseEnd(0);
  EXPECT_EQ(ReadFrame(ends_[1], SteadyTime::InfiniteFuture()).status().code(),
            absl::StatusCode::kOutOfRange);
}

TEST_F(FramingTest, CloseWithinALengthIsDataLoss) {
  SendRaw(std::string("\x05\0", 2));
  CloseEnd(0);
  EXPECT_EQ(ReadFrame(ends_[1], SteadyTime::InfiniteFuture()).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(FramingTest, CloseWithinAMessageIsDataLoss) {
  SendRaw(std::string("\x05\0\0\0ab", 6));
  CloseEnd(0);
  EXPECT_EQ(ReadFrame(ends_[1], SteadyTime::InfiniteFuture()).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(FramingTest, AnnouncedLengthAboveTheLimitIsRefused) {
  SendRaw(std::string("\x01\0\0\x04", 4));
  EXPECT_EQ(ReadFrame(ends_[1], SteadyTime::InfiniteFuture()).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(FramingTest, MessageAboveTheLimitIsNotSent) {
  EXPECT_EQ(WriteFrame(ends_[0], std::string(kMaxFrameBytes + 1, 'x')).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(FramingTest, WriteToAClosedPeerIsOutOfRangeWithoutASignal) {
  CloseEnd(1);
  EXPECT_EQ(WriteFrame(ends_[0], "lost").code(), absl::StatusCode::kOutOfRange);
}

TEST_F(FramingTest, SignalsDoNotDisturbARead) {
  struct sigaction action = {};
  struct sigaction old_action = {};
  action.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGUSR1, &action, &old_action), 0);
  std::atomic<bool> done = false;
  absl::StatusOr<std::string> got = absl::UnknownError("");
  std::thread reader([&] {
    got = ReadFrame(ends_[1], SteadyTime::Now() + absl::Seconds(60));
    done = true;
  });
  for (int i = 0; i < 20; ++i) {
    pthread_kill(reader.native_handle(), SIGUSR1);
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_FALSE(done);
  ASSERT_TRUE(WriteFrame(ends_[0], "late").ok());
  reader.join();
  sigaction(SIGUSR1, &old_action, nullptr);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, "late");
}

}  // namespace
}  // namespace convtune
