#include "server/convtuned/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace convtune::convtuned {
namespace {

const StartLimits kLong = {absl::Minutes(5), absl::Minutes(5)};

bool Never() { return false; }

std::vector<std::string> Shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

TEST(RunPrograms, GivesTheOutputOfEach) {
  const auto outputs = RunPrograms({Shell("echo a"), Shell("echo b; exit 3")}, kLong, Never);
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_TRUE(outputs[0].status.ok());
  EXPECT_EQ(outputs[0].text, "a\n");
  EXPECT_EQ(outputs[1].text, "b\n");
  EXPECT_THAT(std::string(outputs[1].status.message()), testing::HasSubstr("status 3"));
}

TEST(RunPrograms, SaysWhichSignalEndedOne) {
  const auto outputs = RunPrograms({Shell("kill -SEGV $$")}, kLong, Never);
  EXPECT_THAT(std::string(outputs[0].status.message()), testing::HasSubstr("signal 11"));
}

TEST(RunPrograms, WaitsForOneThatClosesItsOutputFirst) {
  const auto outputs =
      RunPrograms({Shell("echo a; exec >&-; sleep 7"), Shell("echo b")}, kLong, Never);
  EXPECT_TRUE(outputs[0].status.ok()) << outputs[0].status;
  EXPECT_EQ(outputs[0].text, "a\n");
  EXPECT_EQ(outputs[1].text, "b\n");
}

TEST(RunPrograms, MissingProgramIsNotFound) {
  const auto outputs = RunPrograms({{"/no/such/program"}}, kLong, Never);
  EXPECT_EQ(outputs[0].status.code(), absl::StatusCode::kNotFound);
}

TEST(RunPrograms, KillsWhatHangsAndKeepsTheRest) {
  const auto outputs = RunPrograms({Shell("echo early; exec sleep 1000"), Shell("echo b")},
                                   {absl::Milliseconds(500), absl::Minutes(5)}, Never);
  EXPECT_EQ(outputs[0].status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(outputs[0].text, "early\n");
  EXPECT_EQ(outputs[1].status, absl::OkStatus());
}

TEST(RunPrograms, WaitsForWhatGivesSignsOfLife) {
  const auto outputs = RunPrograms({Shell("for i in 1 2 3 4 5 6 7 8; do sleep 0.5; echo $i; done")},
                                   {absl::Seconds(3), absl::Minutes(5)}, Never);
  EXPECT_EQ(outputs[0].status, absl::OkStatus());
  EXPECT_EQ(outputs[0].text, "1\n2\n3\n4\n5\n6\n7\n8\n");
}

TEST(RunPrograms, EndsWhenToldTo) {
  const auto outputs = RunPrograms({Shell("exec sleep 1000")}, kLong, [] { return true; });
  EXPECT_EQ(outputs[0].status.code(), absl::StatusCode::kCancelled);
}

TEST(RunPrograms, OutputIsBounded) {
  const auto outputs = RunPrograms({Shell("head -c 3000000 /dev/zero")}, kLong, Never);
  EXPECT_TRUE(outputs[0].status.ok());
  EXPECT_EQ(outputs[0].text.size(), 1u << 20);
}

}  // namespace
}  // namespace convtune::convtuned
