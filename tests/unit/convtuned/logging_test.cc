#include "proto/monitoring/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "proto/monitoring/lost_lines.h"
#include "server/rpc/services/request_log.h"

namespace convtune::convtuned {
namespace {

std::string Log(bool json, const std::string& message) {
  std::ostringstream out;
  spdlog::logger logger("test", std::make_shared<spdlog::sinks::ostream_sink_st>(out));
  logger.set_formatter(log::NewFormatter(json, rpc::services::CurrentRequestId));
  logger.info("{}", message);
  return out.str();
}

std::string Field(const std::string& line, const std::string& name) {
  return nlohmann::json::parse(line).value(name, "(none)");
}

TEST(JsonLog, LineHasTimeLevelAndMessage) {
  const std::string line = Log(true, "hello");
  EXPECT_EQ(line.back(), '\n');
  EXPECT_EQ(Field(line, "message"), "hello");
  EXPECT_EQ(Field(line, "level"), "info");
  EXPECT_EQ(Field(line, "ts").size(), std::string("2026-01-31T12:00:00.123Z").size());
  EXPECT_EQ(Field(line, "request_id"), "(none)");
}

TEST(JsonLog, CarriesTheRequestIdOfTheThread) {
  const rpc::services::ScopedRequestId scope("abc-\"1");
  EXPECT_EQ(Field(Log(true, "hello"), "request_id"), "abc-\"1");
}

TEST(JsonLog, AnyBytesGiveOneLineOfValidJson) {
  std::string bytes;
  for (int c = 0; c < 256; ++c) {
    bytes += static_cast<char>(c);
  }
  const std::string line = Log(true, bytes);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const std::string message = Field(line, "message");
  EXPECT_EQ(message.substr(0, 128), bytes.substr(0, 10) + "\n" + bytes.substr(11, 117));
  EXPECT_EQ(message.substr(128, 3), "\xEF\xBF\xBD");
}

TEST(JsonLog, KeepsTextOfAnyScript) {
  const std::string text = "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80 \" \\";
  EXPECT_EQ(Field(Log(true, text), "message"), text);
}

TEST(TextLog, IsOneLineWithTheRequestId) {
  const rpc::services::ScopedRequestId scope("abc");
  const std::string line = Log(false, "two\nlines");
  EXPECT_THAT(line, testing::HasSubstr(" info two\\nlines request_id=abc\n"));
}

// Standard error is a pipe until it ends.
class PipedError {
 public:
  // `size`: of the pipe, in bytes; 0: as it is.
  explicit PipedError(int size = 0) : before_(dup(STDERR_FILENO)) {
    EXPECT_EQ(pipe(ends_), 0);
    if (size > 0) fcntl(ends_[1], F_SETPIPE_SZ, size);
    dup2(ends_[1], STDERR_FILENO);
    close(ends_[1]);
  }
  ~PipedError() {
    dup2(before_, STDERR_FILENO);
    close(before_);
    close(ends_[0]);
  }
  // What comes up to `end`.
  std::string ReadTo(const std::string& end) const {
    std::string text;
    std::string part(1 << 16, 0);
    while (text.find(end) == std::string::npos) {
      const ssize_t got = read(ends_[0], part.data(), part.size());
      if (got <= 0) break;
      text.append(part, 0, static_cast<size_t>(got));
    }
    return text;
  }

  // So many bytes, or fewer at the end.
  std::string Read(size_t bytes) const {
    std::string text(bytes, 0);
    size_t done = 0;
    while (done < bytes) {
      const ssize_t got = read(ends_[0], text.data() + done, bytes - done);
      if (got <= 0) break;
      done += static_cast<size_t>(got);
    }
    text.resize(done);
    return text;
  }
  // What is in it now.
  int Waiting() const {
    int bytes = 0;
    EXPECT_EQ(ioctl(ends_[0], FIONREAD, &bytes), 0);
    return bytes;
  }

 private:
  const int before_;
  int ends_[2] = {-1, -1};
};

constexpr int kPage = 4096;  // a pipe of this size holds a page

// Loses lines, and reads what waited but for its last page: the line that says so has no room.
class LostLinesTest : public ::testing::Test {
 protected:
  LostLinesTest() {
    log::Init(/*json=*/true, "info");
    log::Info("x");
    line_.assign(3 * kPage + 1 - piped_.ReadTo("\n").size(), 'x');
    LoseSome();
    piped_.Read((kLines - (log::LostLines().others - before_)) * 3 * kPage - kPage);
    while (piped_.Waiting() < kPage) absl::SleepFor(absl::Milliseconds(1));
    absl::SleepFor(absl::Milliseconds(20));
  }

  void LoseSome() const {
    for (size_t i = 0; i < kLines; ++i) log::Info("$0", line_);
  }

  static constexpr size_t kLines = 100;
  const int64_t before_ = log::LostLines().others;
  const PipedError piped_{kPage};
  std::string line_;
};

TEST(Log, NobodyWaitsForAReaderAndWhatIsLostIsSaid) {
  const log::Lost before = log::LostLines();
  const PipedError piped;
  log::Init(/*json=*/true, "info");
  const std::string line(10'000, 'x');
  for (int i = 0; i < 200; ++i) log::Info("$0", line);  // more than may wait
  for (int i = 0; i < 400; ++i) log::Audit(R"({"x":")" + line + R"("})");
  const log::Lost now = log::LostLines();
  const log::Lost lost = {now.audit - before.audit, now.others - before.others};
  EXPECT_GT(lost.others, 50);
  EXPECT_GT(lost.audit, 0);
  const std::string text = piped.ReadTo(R"("lost":)");
  EXPECT_THAT(text, testing::HasSubstr(std::to_string(lost.audit + lost.others) +
                                       " lines of this log were lost"));
  EXPECT_THAT(text, testing::HasSubstr(R"("lost":)" + std::to_string(lost.audit)));
  // There is a reader again: the line is written when Info returns.
  log::Info("after");
  EXPECT_THAT(piped.ReadTo("after"), testing::HasSubstr("after"));
}

TEST_F(LostLinesTest, WhatIsLostWhileThatIsSaidIsSaidToo) {
  const int64_t first = log::LostLines().others - before_;
  LoseSome();
  const int64_t second = log::LostLines().others - before_ - first;
  ASSERT_GT(first, 0);
  ASSERT_GT(second, 0);
  const std::string end = " lines of this log were lost";
  piped_.ReadTo(std::to_string(first) + end);
  std::string text;
  const auto is_said = [&] { return text.find(std::to_string(second) + end) != text.npos; };
  for (int i = 0; i < 1000 && !is_said(); ++i) {
    text += piped_.Read(piped_.Waiting());
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_TRUE(is_said());
}

TEST_F(LostLinesTest, TheEndWaitsForWhatIsSaidOfThem) {
  std::thread reader([this] {
    absl::SleepFor(absl::Milliseconds(50));
    piped_.Read(kPage);
  });
  spdlog::default_logger()->flush();
  EXPECT_GT(piped_.Waiting(), 0);
  EXPECT_LT(piped_.Waiting(), kPage);
  reader.join();
  EXPECT_THAT(piped_.ReadTo("lost"), testing::HasSubstr("lost"));
}

TEST(Log, ALineMayBeLongerThanAllThatMayWait) {
  const int64_t before = log::LostLines().others;
  const PipedError piped;
  log::Init(/*json=*/true, "info");
  std::thread writer([] {
    log::Info("$0end", std::string(2 << 20, 'x'));
    log::Info("after");
  });
  EXPECT_THAT(piped.ReadTo("after"), testing::HasSubstr("xend"));
  writer.join();
  EXPECT_EQ(log::LostLines().others, before);
}

TEST(RequestId, ScopesNest) {
  EXPECT_EQ(rpc::services::CurrentRequestId(), "");
  const rpc::services::ScopedRequestId outer("a");
  {
    const rpc::services::ScopedRequestId inner("b");
    EXPECT_EQ(rpc::services::CurrentRequestId(), "b");
  }
  EXPECT_EQ(rpc::services::CurrentRequestId(), "a");
}

}  // namespace
}  // namespace convtune::convtuned
