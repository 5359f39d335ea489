#include "proto/base/child_program.h"

#include <gtest/gtest.h>

namespace convtune {
namespace {

absl::StatusOr<ProgramOutput> Shell(const std::string& script,
                                    absl::Duration limit = absl::InfiniteDuration()) {
  return RunToEnd({"sh", "-c", script}, {{"WORD", "ours"}}, ChildErrors::kOutput, limit);
}

TEST(RunToEndTest, BringsOutputErrorsAndExitCode) {
  const absl::StatusOr<ProgramOutput> ended = Shell("echo $WORD; echo bad >&2; exit 3");
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ended->text, "ours\nbad\n");
  EXPECT_EQ(ended->exit_code, 3);
  EXPECT_EQ(Shell("kill -9 $$")->exit_code, -1);
}

TEST(RunToEndTest, AChildThatPrintsOrSleepsForeverIsKilledAtTheLimit) {
  EXPECT_EQ(Shell("exec sleep 1000", absl::Milliseconds(20)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  // Whether the child's next line comes just before the limit or behind it is chance.
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(Shell("while :; do echo y; done", absl::Milliseconds(20)).status().code(),
              absl::StatusCode::kDeadlineExceeded);
  }
}

TEST(RunToEndTest, WhatCannotBeStartedIsSaid) {
  EXPECT_EQ(RunToEnd({"/there/is/none"}, {}, ChildErrors::kOurs).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace convtune
