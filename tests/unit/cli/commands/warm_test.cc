#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "client/cli/commands/warm/warm.h"
#include "tests/unit/cli/fake_daemon.h"

namespace convtune::cli::commands {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class WarmTest : public DaemonTest {
 protected:
  WarmTest() {
    daemon_.tuning.mutable_elapsed()->set_seconds(2);
    std::ofstream(Path("list.txt")) << ProblemText(8) << "\n" << ProblemText(16) << "\n";
  }

  std::string Path(const std::string& name) const { return daemon_.folder() + "/" + name; }

  RunResult Warm(std::vector<std::string> arguments, const RunOptions& options = {}) {
    arguments.insert(arguments.begin(), "warm");
    return Run(arguments, options);
  }

  // Stands in for Python, for model.onnx: writes its words to a file and runs `script`.
  void FakePython(const std::string& script) {
    std::ofstream(Path("model.onnx")) << '\x08';
    std::ofstream(Path("python")) << "#!/bin/sh\necho \"$@\" > '" << Path("words") << "'\n"
                                  << script << "\n";
    chmod(Path("python").c_str(), 0755);
    setenv("CONVTUNE_PYTHON", Path("python").c_str(), 1);
  }
  void TearDown() override { unsetenv("CONVTUNE_PYTHON"); }
};

TEST_F(WarmTest, WhatIsNotOnDiskIsNotWarm) {
  daemon_.persisted = false;
  const RunResult result = Warm({Path("list.txt"), "--json"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("not on disk, and lost with the daemon: 2 results"));
  EXPECT_THAT(result.err, HasSubstr("the model is not warm"));
  EXPECT_THAT(result.out, HasSubstr("\"notOnDisk\":2"));
  EXPECT_THAT(result.out, HasSubstr("\"warm\":false"));
}

TEST_F(WarmTest, AProblemThatTheDaemonRefusesIsNoHit) {
  daemon_.refused = "x=1x16x";
  const RunResult result = Warm({Path("list.txt"), "--json"});
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\"problems\":1,\"hits\":1"));
  EXPECT_THAT(result.out, HasSubstr("\"invalid\":1"));
  EXPECT_THAT(result.err, HasSubstr("the model is not warm"));
}

TEST_F(WarmTest, WhatIsWantedForAnotherEnvironmentIsNotTunedForThisOne) {
  const std::string here = "\"nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full\"";
  const std::string other = "\"nvidia-h200,cc=9.0,sms=132,cudnn=9.12.0,lib=full\"";
  std::ofstream(Path("wanted.csv")) << "problem,misses,environment_text\n"
                                    << "\"" << ProblemText(8) << "\",3," << here << "\n"
                                    << "\"" << ProblemText(16) << "\",3," << other << "\n"
                                    << "\"" << ProblemText(8) << "\",3," << other << "\n";
  const RunResult result = Warm({Path("wanted.csv"), "--json"});
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\"problems\":3,\"hits\":1,\"tuned\":0,\"failed\":2"));
  EXPECT_THAT(result.err,
              HasSubstr("2 x wanted for nvidia-h200,cc=9.0,sms=132,cudnn=9.12.0,lib=full, which "
                        "this is not"));
  EXPECT_THAT(result.err, HasSubstr("the model is not warm"));
}

TEST(ExpectedGainTest, ChoicesDisagreeByHowManyDiffer) {
  EXPECT_EQ(warm::Disagreement({}), 0);
  EXPECT_EQ(warm::Disagreement({"a"}), 0);
  EXPECT_EQ(warm::Disagreement({"a", "a", "a"}), 0);
  EXPECT_EQ(warm::Disagreement({"a", "b", "a"}), 0.5);
  EXPECT_EQ(warm::Disagreement({"a", "b", "c"}), 1);
}

TEST(ExpectedGainTest, MoreWorkGoesFirstUnlessTheChoicesOfLessDisagree) {
  const auto row = [](int channels, int64_t count) {
    return ProblemRow{ConvProblem::Parse(ProblemText(channels)).value(), count, "a:1"};
  };
  const std::vector<ProblemRow> rows = {row(8, 3), row(8 * 2, 2), row(8 * 4, 2)};
  const auto order = [&](const warm::FirstChoices& choices) {
    std::vector<int64_t> channels;
    for (const ProblemRow& next : warm::MostGainFirst(rows, choices)) {
      channels.push_back(next.problem.x_dims()[1]);
    }
    return channels;
  };
  EXPECT_THAT(order({}), ElementsAre(32, 16, 8));
  // 3 runs of half the arithmetic, twice as promising, are more than 2 runs.
  EXPECT_THAT(order({{rows[0].problem.ToText(), {"a", "b"}}}), ElementsAre(32, 8, 16));
  EXPECT_THAT(order({{rows[0].problem.ToText(), {"a", "a"}}}), ElementsAre(32, 16, 8));
}

TEST(ExpectedGainTest, AModesChoiceIsItsFirstThatCanBeBuilt) {
  calls::TuningMap tunings;
  const auto add = [&tunings](int a, int b, v1::CandidateStatus status) {
    v1::Tuning& tuning = tunings["problem"];
    v1::Candidate* candidate = tuning.add_candidates();
    candidate->mutable_engine_config();
    candidate->set_text("graph:eng" + std::to_string(tuning.candidates_size()));
    candidate->set_heuristic_rank(tuning.candidates_size() - 1);
    candidate->set_status(status);
    candidate->set_mode_a_place(a);
    candidate->set_mode_b_place(b);
  };
  add(1, 2, v1::CANDIDATE_STATUS_UNSUPPORTED);
  add(2, 3, v1::CANDIDATE_STATUS_FINALIZED);
  add(3, 0, v1::CANDIDATE_STATUS_FINALIZED);
  add(0, 1, v1::CANDIDATE_STATUS_TIMED);
  warm::FirstChoices choices;
  warm::AddModeChoices(tunings, &choices);
  EXPECT_THAT(choices["problem"], ElementsAre("graph:eng2", "graph:eng4"));
  warm::AddStockChoices(tunings, &choices);
  EXPECT_THAT(choices["problem"], ElementsAre("graph:eng2", "graph:eng4", "graph:eng2"));
}

TEST_F(WarmTest, ATotalBudgetSaysThatItsOrderIsAHeuristic) {
  daemon_.misses["x"] = v1::MISS_REASON_NOT_FOUND;
  const RunResult result = Warm({Path("list.txt"), "--budget-total", "20s"});
  EXPECT_THAT(result.err, HasSubstr("most expected gain first"));
  EXPECT_THAT(result.err, HasSubstr("the order is a heuristic: runs x arithmetic"));
  // No problem has more time than all of them.
  EXPECT_EQ(daemon_.last_create().options().time_budget().seconds(), 20);
  Warm({Path("list.txt"), "--budget-total", "1500ms", "--budget", "1900ms"});
  EXPECT_EQ(daemon_.last_create().options().time_budget().seconds(), 1);
  EXPECT_EQ(daemon_.last_create().options().time_budget().nanos(), 500'000'000);
  EXPECT_FALSE(daemon_.last_create().options().list_only());
  Warm({Path("list.txt"), "--budget-total", "20m"});
  EXPECT_FALSE(daemon_.last_create().options().has_time_budget());
  Warm({Path("list.txt"), "--budget-total", "20m", "--budget", "2s"});
  EXPECT_EQ(daemon_.last_create().options().time_budget().seconds(), 2);
}

TEST_F(WarmTest, CtrlCWhileTheOrderIsMadeEndsTheWholeCommand) {
  daemon_.misses["x"] = v1::MISS_REASON_NOT_FOUND;
  daemon_.states[0].set_state(v1::JOB_STATE_RUNNING);
  int watched = 0;
  daemon_.on_watch = [&watched] {
    if (++watched == 1) kill(getpid(), SIGINT);
  };
  const RunResult result = Warm({Path("list.txt"), "--budget-total", "20m"});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(watched, 1);
  EXPECT_TRUE(daemon_.last_create().options().list_only());
  EXPECT_THAT(result.err, HasSubstr("cancelled while the order was made; nothing was tuned"));
  EXPECT_THAT(result.err, HasSubstr("the model is not warm"));
}

TEST_F(WarmTest, AnOnnxModelIsReadByThePythonPackageWithWhatIsSaidOfIt) {
  FakePython("cat '" + Path("list.txt") + "'");
  const RunResult result =
      Warm({Path("model.onnx"), "--batch", "1,8..16/8", "--dim", "h,w=224..512/32", "--dim", "k=3",
            "--runtime", "fused", "--dtype", "fp16", "--layout", "nhwc", "--json"});
  EXPECT_EQ(result.code, 0) << result.err;
  // The reader's problems are taken as they are.
  EXPECT_THAT(result.out, HasSubstr("\"problems\":2"));
  std::string words;
  std::getline(std::ifstream(Path("words")), words);
  EXPECT_EQ(words, "-m convtune problems " + Path("model.onnx") +
                       " --batch 1,8..16/8 --dim h,w=224..512/32 --dim k=3 --runtime fused "
                       "--dtype f16 --layout nhwc");
}

TEST_F(WarmTest, AModelWithoutAConvolutionThatCanBeTunedIsNotWarm) {
  FakePython("echo");
  RunResult result = Warm({Path("model.onnx")});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err,
              HasSubstr("model.onnx: model: must have a convolution that can be tuned"));
  // Nor is all warm where a list beside it is.
  result = Warm({Path("model.onnx"), Path("list.txt"), "--json"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.out, HasSubstr("\"invalid\":1"));
  EXPECT_THAT(result.err, HasSubstr("the model is not warm"));
}

TEST_F(WarmTest, WithoutThePackageAnOnnxModelIsOneErrorThatSaysHowToGetIt) {
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
  EXPECT_THAT(result.err, HasSubstr("error: " + Path("gone.onnx") +
                                    ": cannot be read: No such file or directory"));
}

}  // namespace
}  // namespace convtune::cli::commands
