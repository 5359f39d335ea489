#include "server/rpc/http2/frame_guard.h"

#include <gtest/gtest.h>

#include <string>

namespace convtune::rpc::http2 {
namespace {

constexpr int kData = 0;
constexpr int kHeaders = 1;
constexpr int kReset = 3;
constexpr int kContinuation = 9;
constexpr int kEndHeaders = 4;

SteadyTime g_now = SteadyTime::Now();
SteadyTime Now() { return g_now; }

std::string Frame(int kind, int flags, size_t length) {
  std::string frame;
  for (int shift = 16; shift >= 0; shift -= 8) frame += static_cast<char>(length >> shift);
  frame += static_cast<char>(kind);
  frame += static_cast<char>(flags);
  frame += std::string("\0\0\0\1", 4);
  // What looks like the head of a reset, over and over.
  for (size_t i = 0; i < length; ++i) frame += static_cast<char>(i % 9 == 3 ? kReset : 0);
  return frame;
}

class FrameGuardTest : public ::testing::Test {
 protected:
  FrameGuardTest() { guard_.Take(std::string(24, 'p'), &Now); }
  bool Take(const std::string& bytes) { return guard_.Take(bytes, &Now); }
  // How many resets are taken, of `most`.
  static int Resets(FrameGuard* guard, int most) {
    int taken = 0;
    while (taken < most && guard->Take(Frame(kReset, 0, 4), &Now)) ++taken;
    return taken;
  }

  TokenBucket shared_{FrameGuard::kAllResets, FrameGuard::kAllResetsPerSecond};
  FrameGuard guard_{&shared_};
};

TEST_F(FrameGuardTest, CallsAreTaken) {
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_TRUE(Take(Frame(kHeaders, kEndHeaders, 300) + Frame(kData, 1, 16'384)));
  }
}

TEST_F(FrameGuardTest, FramesMayComeInAnyPieces) {
  const std::string call = Frame(kHeaders, 0, 30) + Frame(kContinuation, kEndHeaders, 5) +
                           Frame(kData, 0, 100) + Frame(kReset, 0, 4);
  for (size_t size = 1; size < call.size(); ++size) {
    for (size_t at = 0; at < call.size(); at += size) {
      ASSERT_TRUE(Take(call.substr(at, size)));
    }
  }
}

TEST_F(FrameGuardTest, HeadersThatDoNotEndAreRefused) {
  EXPECT_TRUE(Take(Frame(kHeaders, 0, 16'000)));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Take(Frame(kContinuation, 0, 16'000)));
  EXPECT_FALSE(Take(Frame(kContinuation, kEndHeaders, 16'000)));
  EXPECT_EQ(guard_.why(), "the headers of one of its calls do not end");
  EXPECT_FALSE(Take(Frame(kData, 0, 1))) << "for good";
}

TEST_F(FrameGuardTest, HeadersInTooManyFramesAreRefused) {
  EXPECT_TRUE(Take(Frame(kHeaders, 0, 1)));
  for (int i = 1; i < FrameGuard::kMaxHeaderFrames; ++i) {
    ASSERT_TRUE(Take(Frame(kContinuation, 0, 1)));
  }
  EXPECT_FALSE(Take(Frame(kContinuation, kEndHeaders, 1)));
}

TEST_F(FrameGuardTest, ResetsAreBoundedAndComeBackWithTime) {
  EXPECT_EQ(Resets(&guard_, 800), 800);
  g_now = g_now + absl::Seconds(2);
  EXPECT_EQ(Resets(&guard_, 10'000), 600);
  EXPECT_EQ(guard_.why(), "it resets too many calls");
}

TEST_F(FrameGuardTest, WhereAllResetMuchOneMayResetLittle) {
  for (int i = 0; i < 8; ++i) {
    FrameGuard other(&shared_);
    other.Take(std::string(24, 'p'), &Now);
    EXPECT_EQ(Resets(&other, 1000), 1000);
  }
  EXPECT_EQ(Resets(&guard_, 1000), 8);
  g_now = g_now + absl::Seconds(10);
  FrameGuard later(&shared_);
  later.Take(std::string(24, 'p'), &Now);
  EXPECT_EQ(Resets(&later, 500), 500);
}

}  // namespace
}  // namespace convtune::rpc::http2
