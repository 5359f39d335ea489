#include "server/convtuned/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace convtune::convtuned {
namespace {

const StartLimits kLong = {absl::Minutes(5), absl::Minutes(5)};

bool Never() { return false; }

std::vector<std::string> Shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

TEST(RunProgram, GivesTheOutputAlsoOfOneThatFails) {
  const ChildOutput works = RunProgram(Shell("echo a"), kLong, Never);
  EXPECT_EQ(works.status, absl::OkStatus());
  EXPECT_EQ(works.text, "a\n");
  const ChildOutput fails = RunProgram(Shell("echo b; exit 3"), kLong, Never);
  EXPECT_EQ(fails.text, "b\n");
  EXPECT_THAT(std::string(fails.status.message()), testing::HasSubstr("status 3"));
}

TEST(RunProgram, SaysWhichSignalEndedIt) {
  const ChildOutput output = RunProgram(Shell("kill -SEGV $$"), kLong, Never);
  EXPECT_THAT(std::string(output.status.message()), testing::HasSubstr("signal 11"));
}

TEST(RunProgram, WaitsForOneThatClosesItsOutputFirst) {
  const ChildOutput output = RunProgram(Shell("echo a; exec >&-; sleep 7"), kLong, Never);
  EXPECT_EQ(output.status, absl::OkStatus());
  EXPECT_EQ(output.text, "a\n");
}

TEST(RunProgram, MissingProgramIsNotFound) {
  EXPECT_EQ(RunProgram({"/no/such/program"}, kLong, Never).status.code(),
            absl::StatusCode::kNotFound);
}

TEST(RunProgram, KillsWhatHangs) {
  const ChildOutput output = RunProgram(Shell("echo early; exec sleep 1000"),
                                        {absl::Milliseconds(500), absl::Minutes(5)}, Never);
  EXPECT_EQ(output.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(output.text, "early\n");
}

TEST(RunProgram, WaitsForWhatGivesSignsOfLife) {
  const ChildOutput output =
      RunProgram(Shell("for i in 1 2 3 4 5 6 7 8; do sleep 0.5; echo $i; done"),
                 {absl::Seconds(3), absl::Minutes(5)}, Never);
  EXPECT_EQ(output.status, absl::OkStatus());
  EXPECT_EQ(output.text, "1\n2\n3\n4\n5\n6\n7\n8\n");
}

TEST(RunProgram, EndsWhenToldTo) {
  const ChildOutput output = RunProgram(Shell("exec sleep 1000"), kLong, [] { return true; });
  EXPECT_EQ(output.status.code(), absl::StatusCode::kCancelled);
}

TEST(RunProgram, OutputIsBounded) {
  const ChildOutput output = RunProgram(Shell("head -c 3000000 /dev/zero"), kLong, Never);
  EXPECT_EQ(output.status, absl::OkStatus());
  EXPECT_EQ(output.text.size(), 1u << 20);
}

}  // namespace
}  // namespace convtune::convtuned
