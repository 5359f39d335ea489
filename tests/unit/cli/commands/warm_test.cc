#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/unit/cli/fake_daemon.h"

namespace convtune::cli {
namespace {

using ::testing::HasSubstr;

class WarmTest : public testing::Test {
 protected:
  WarmTest() {
    daemon_.tuning.mutable_elapsed()->set_seconds(2);
    std::ofstream(Path("list.txt")) << ProblemText(8) << "\n" << ProblemText(16) << "\n";
  }

  std::string Path(const std::string& name) const { return daemon_.folder() + "/" + name; }

  RunResult Warm(std::vector<std::string> arguments, const RunOptions& options = {}) {
    arguments.insert(arguments.begin(), "warm");
    arguments.insert(arguments.end(), {"--address", daemon_.address()});
    return RunProgram(arguments, options);
  }

  // Stands in for Python: writes its words to a file and runs `script`.
  void FakePython(const std::string& script) {
    std::ofstream(Path("python")) << "#!/bin/sh\necho \"$@\" > '" << Path("words") << "'\n"
                                  << script << "\n";
    chmod(Path("python").c_str(), 0755);
    setenv("CONVTUNE_PYTHON", Path("python").c_str(), 1);
  }
  void TearDown() override { unsetenv("CONVTUNE_PYTHON"); }

  FakeDaemon daemon_;
};

// The daemon lists no tunings here: whoever pages through them finds nothing.
TEST_F(WarmTest, WhatARestartSavesIsAskedOfTheListAndNotOfTheDatabase) {
  const RunResult result = Warm({Path("list.txt")});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("saved per restart: 4.0 s, what the searches of 2 "));
}

TEST_F(WarmTest, OfALongListTheFirstThousandAreAsked) {
  std::ofstream list(Path("long.txt"));
  for (int i = 1; i <= 1200; ++i) list << ProblemText(i) << "\n";
  list.close();
  const RunResult result = Warm({Path("long.txt")});
  EXPECT_THAT(result.err, HasSubstr("what the searches of 1000 "));
}

TEST_F(WarmTest, WhatATuningMayCostReachesTheDaemon) {
  daemon_.misses["x"] = v1::MISS_REASON_NOT_FOUND;
  v1::TuningJob job;
  job.set_name("jobs/1");
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  daemon_.states = {job};
  Warm({Path("list.txt"), "--budget", "2s", "--wait-idle", "5m", "--memory-budget", "2GiB"});
  const v1::TuningOptions options = daemon_.last_create().options();
  EXPECT_EQ(options.time_budget().seconds(), 2);
  EXPECT_EQ(options.wait_idle().seconds(), 300);
  EXPECT_EQ(options.memory_budget_bytes(), int64_t{2} << 30);
}

TEST_F(WarmTest, AWaitOfMoreThanAnHourIsRefused) {
  const RunResult result = Warm({Path("list.txt"), "--wait-idle", "2h"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("--wait-idle: must be at most 1h, is '2h'"));
}

TEST_F(WarmTest, AnOnnxModelIsReadByThePythonPackage) {
  std::ofstream(Path("model.onnx")) << '\x08';
  FakePython("cat '" + Path("list.txt") + "'");
  const RunResult result = Warm({Path("model.onnx"), "--batch", "32", "--json"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\"problems\":2"));
  std::string words;
  std::getline(std::ifstream(Path("words")), words);
  EXPECT_EQ(words, "-m convtune problems " + Path("model.onnx") + " --batch 32");
}

TEST_F(WarmTest, WithoutThePackageAnOnnxModelIsOneErrorThatSaysHowToGetIt) {
  std::ofstream(Path("model.onnx")) << '\x08';
  FakePython("exit 1");
  RunResult result = Warm({Path("model.onnx")});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err,
              HasSubstr("pip install './client/python[onnx]' in a checkout of convtune"));
  setenv("CONVTUNE_PYTHON", "/nonexistent/python", 1);
  result = Warm({Path("model.onnx")});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("/nonexistent/python cannot be run"));
  result = Warm({Path("gone.onnx")});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("gone.onnx: No such file or directory"));
}

}  // namespace
}  // namespace convtune::cli
