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
  for (const char* const script : {"while sleep 0.01; do echo y; done", "exec sleep 1000"}) {
    EXPECT_EQ(Shell(script, absl::Milliseconds(200)).status().code(),
              absl::StatusCode::kDeadlineExceeded)
        << script;
  }
}

TEST(RunToEndTest, WhatCannotBeStartedIsSaid) {
  EXPECT_EQ(RunToEnd({"/there/is/none"}, {}, ChildErrors::kOurs).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace convtune
