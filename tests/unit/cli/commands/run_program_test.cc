// A binary of its own: what is tested is for a process with one thread.
#include "client/cli/commands/run/run.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

namespace convtune::cli::commands {
namespace {

TEST(RunProgramTest, GivesTheExitCodeAndTheVariables) {
  const auto end = run::RunProgramAndWait({"sh", "-c", "exit $CONVTUNE_TEST_CODE"},
                                          {{"CONVTUNE_TEST_CODE", "37"}});
  ASSERT_TRUE(end.ok()) << end.status();
  ASSERT_TRUE(WIFEXITED(*end));
  EXPECT_EQ(WEXITSTATUS(*end), 37);
}

TEST(RunProgramTest, GivesTheSignal) {
  const auto end = run::RunProgramAndWait({"sh", "-c", "kill -TERM $$"}, {});
  ASSERT_TRUE(end.ok());
  ASSERT_TRUE(WIFSIGNALED(*end));
  EXPECT_EQ(WTERMSIG(*end), SIGTERM);
}

TEST(RunProgramTest, PassesSignalsOn) {
  const auto end = run::RunProgramAndWait(
      {"sh", "-c", "trap 'exit 5' USR1; kill -USR1 $PPID; while :; do :; done"}, {});
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(WEXITSTATUS(*end), 5);
}

TEST(RunProgramTest, AProgramThatIsNotThereOrMayNotRunIsAnError) {
  EXPECT_TRUE(absl::IsNotFound(run::RunProgramAndWait({"/nonexistent/program"}, {}).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(run::RunProgramAndWait({"/etc/passwd"}, {}).status()));
}

}  // namespace
}  // namespace convtune::cli::commands
