// Look-ups: exit codes, precedence, and what is printed.
#include "client/cli/calls/answers.h"

#include <gmock/gmock.h>
#include <google/rpc/error_details.pb.h>
#include <google/rpc/status.pb.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/input/problem_args.h"
#include "proto/model/problem/conv_problem.h"
#include "tests/unit/cli/fake_daemon.h"

namespace convtune::cli::calls {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class BatchTest : public DaemonTest {
 protected:
  RunResult Get(std::vector<std::string> arguments, const std::string& in = "") {
    arguments.insert(arguments.begin(), "get");
    return Run(arguments, {.in = in});
  }
};

TEST_F(BatchTest, AHitEndsWithZero) {
  const RunResult result = Get({ProblemText(8)});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
}

TEST_F(BatchTest, AMissEndsWithThree) {
  daemon_.misses["x=1x16x"] = v1::MISS_REASON_NOT_FOUND;
  const RunResult result = Get({ProblemText(8), ProblemText(16)});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.out, HasSubstr("not found"));
  EXPECT_THAT(result.out, HasSubstr("graph:eng34"));
}

TEST_F(BatchTest, AFailedTuningComesBeforeAMiss) {
  daemon_.misses["x=1x16x"] = v1::MISS_REASON_NOT_FOUND;
  daemon_.misses["x=1x32x"] = v1::MISS_REASON_TUNING_FAILED;
  EXPECT_EQ(Get({ProblemText(16), ProblemText(32)}).code, 1);
}

TEST_F(BatchTest, AnInvalidRowComesBeforeFailuresAndTheOthersAreDone) {
  daemon_.misses["x=1x32x"] = v1::MISS_REASON_TUNING_FAILED;
  const RunResult result =
      Get({"--file", "-"}, ProblemText(8) + "\nnonsense\n" + ProblemText(32) + "\n");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("stdin:2"));
  EXPECT_EQ(daemon_.last_get().problems_size(), 2);
  EXPECT_THAT(result.out, HasSubstr("x=1x8x8x8"));
}

TEST_F(BatchTest, NoDaemonComesBeforeAllElse) {
  const RunResult result =
      RunProgram({"get", ProblemText(8), "nonsense", "--address", "unix:/nonexistent/socket"});
  EXPECT_EQ(result.code, 4);
  EXPECT_THAT(result.err, HasSubstr("unix:/nonexistent/socket"));
  EXPECT_THAT(result.err, HasSubstr("convtuned"));
}

TEST_F(BatchTest, ADaemonThatStopsEndsWithFour) {
  daemon_.error = {grpc::StatusCode::UNAVAILABLE, "draining"};
  const RunResult result = Get({ProblemText(8)});
  EXPECT_EQ(result.code, 4);
  EXPECT_THAT(result.err, HasSubstr("start a daemon with"));
}

TEST_F(BatchTest, WhoMayNotUseTheSocketIsNotToldToStartADaemon) {
  ASSERT_EQ(chmod(daemon_.address().substr(5).c_str(), 0), 0);
  const bool root = geteuid() == 0;
  ASSERT_EQ(seteuid(root ? 65534 : geteuid()), 0);
  const RunResult result = Get({ProblemText(8)});
  ASSERT_EQ(seteuid(root ? 0 : geteuid()), 0);
  EXPECT_EQ(result.code, 4);
  EXPECT_THAT(result.err, HasSubstr("Permission denied: "));
  EXPECT_THAT(result.err, HasSubstr("group"));
  EXPECT_THAT(result.err, Not(HasSubstr("start a daemon with")));
}

TEST_F(BatchTest, ADaemonThatSaysWhyItCannotIsNotToBeStarted) {
  google::rpc::Status details;
  details.set_code(grpc::StatusCode::UNAVAILABLE);
  details.set_message("the GPU is lost");
  details.add_details()->PackFrom(google::rpc::RetryInfo());
  daemon_.error = {grpc::StatusCode::UNAVAILABLE, "the GPU is lost", details.SerializeAsString()};
  const RunResult result = Get({ProblemText(8)});
  EXPECT_EQ(result.code, 4);
  EXPECT_THAT(result.err, HasSubstr("cannot do this now: the GPU is lost"));
  EXPECT_THAT(result.err, Not(HasSubstr("start a daemon with")));
}

TEST_F(BatchTest, OtherErrorsEndWithOne) {
  daemon_.error = {grpc::StatusCode::FAILED_PRECONDITION, "there are several environments"};
  const RunResult result = Get({ProblemText(8)});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("several environments"));
}

TEST_F(BatchTest, FieldsOfAnErrorAreSaidOneByOne) {
  daemon_.error = BadRequest({{"environment", "must be known"}, {"constraints.api", "must be"}});
  const RunResult result = Get({ProblemText(8)});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("error: environment: must be known\n"));
  EXPECT_THAT(result.err, HasSubstr("error: constraints.api: must be\n"));
}

TEST_F(BatchTest, RowsThatTheDaemonRefusesAreNamedAndTheOthersAreAskedAgain) {
  daemon_.refused = "x=1x16x";
  const RunResult result =
      Get({"--file", "-"}, ProblemText(8) + "\n" + ProblemText(16) + "\n" + ProblemText(32));
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("stdin:2: problems[1].text: must be one that is served"));
  EXPECT_THAT(result.out, HasSubstr("x=1x32x"));
}

TEST_F(BatchTest, TableGolden) {
  daemon_.misses["x=1x16x"] = v1::MISS_REASON_INSUFFICIENT_EVIDENCE;
  EXPECT_EQ(Get({ProblemText(8), ProblemText(16)}).out,
            "PROBLEM                                   WINNER            EVIDENCE     TIME  "
            "WORKSPACE  RUNNERS-UP\n"
            "fwd,x=1x8x8x8,w=8x8x3x3,pad=1,nhwc,f16    graph:eng34,k2=5  measured  12.5 us  "
            "    1 MiB  eng1 (20.0 us)\n"
            "fwd,x=1x16x8x8,w=8x16x3x3,pad=1,nhwc,f16  -                 miss            -  "
            "        -  insufficient evidence\n");
}

TEST_F(BatchTest, JsonHoldsEveryRow) {
  daemon_.misses["x=1x16x"] = v1::MISS_REASON_NOT_FOUND;
  const RunResult result =
      Get({"--file", "-", "--json"}, ProblemText(8) + "\n" + ProblemText(16) + "\nnonsense\n");
  const auto document = nlohmann::json::parse(result.out);
  EXPECT_EQ(document["environment"]["name"], "nvidia-h200");
  const auto& results = document["results"];
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0]["row"], "stdin:1");
  EXPECT_EQ(results[0]["answer"]["winner"]["text"], "graph:eng34,k2=5");
  EXPECT_EQ(results[0]["answer"]["candidateCount"], 41);
  EXPECT_TRUE(results[1].contains("miss"));
  ASSERT_EQ(document["invalid"].size(), 1U);
  EXPECT_EQ(document["invalid"][0]["row"], "stdin:3");
}

TEST_F(BatchTest, CsvHasAHeadingAndOneLineForEachRow) {
  daemon_.misses["x=1x16x"] = v1::MISS_REASON_NOT_FOUND;
  const std::string out = Get({ProblemText(8), ProblemText(16), "--csv"}).out;
  EXPECT_THAT(out, StartsWith("row,problem,outcome,winner,evidence,"));
  EXPECT_THAT(out,
              HasSubstr(",answer,\"graph:eng34,k2=5\",measured,local,false,12.5,12.4,12.6,1048576,"
                        "true,41,30,\"graph:eng34,k2=5;graph:eng1\",true,nvidia-h200,v1:0123,"));
  EXPECT_THAT(out, HasSubstr(",miss,,,"));
}

TEST_F(BatchTest, ALimitOfWorkspaceReachesTheDaemonInBytes) {
  Get({ProblemText(8), "--max-workspace", "64MiB"});
  EXPECT_EQ(daemon_.last_get().constraints().max_workspace_bytes(), 64 << 20);
}

TEST_F(BatchTest, OptionsReachTheDaemon) {
  std::vector<std::string> options = absl::StrSplit(
      "--max-workspace 0 --deterministic --no-tf32 --no-winograd --no-fft --no-down-convert "
      "--no-reduced-precision --api graph --launch graph --on-miss enqueue --min-evidence measured "
      "--max-age 30m --hints --environment profile:nvidia-h200",
      ' ');
  options.push_back(ProblemText(8));
  Get(options);
  const v1::BatchGetRequest request = daemon_.last_get();
  EXPECT_TRUE(request.constraints().has_max_workspace_bytes());
  EXPECT_EQ(request.constraints().max_workspace_bytes(), 0);
  EXPECT_TRUE(request.constraints().deterministic());
  EXPECT_TRUE(request.constraints().forbid_tf32());
  EXPECT_TRUE(request.constraints().forbid_winograd());
  EXPECT_TRUE(request.constraints().forbid_fft());
  EXPECT_TRUE(request.constraints().forbid_down_convert());
  EXPECT_TRUE(request.constraints().forbid_reduced_precision_reduction());
  EXPECT_EQ(request.constraints().api(), v1::API_GRAPH);
  EXPECT_EQ(request.constraints().launch(), v1::LAUNCH_MODE_GRAPH_CAPTURE);
  EXPECT_EQ(request.on_miss(), v1::ON_MISS_ENQUEUE);
  EXPECT_EQ(request.min_evidence(), v1::EVIDENCE_MEASURED);
  EXPECT_EQ(request.max_age().seconds(), 1800);
  EXPECT_TRUE(request.include_hints());
  EXPECT_EQ(request.environment(), "profile:nvidia-h200");
}

TEST_F(BatchTest, OverridesChangeEveryProblem) {
  Get({ProblemText(8), "--op", "bwd_data", "--dtype", "f32", "--layout", "nchw", "--batch", "4"});
  const std::string text = daemon_.last_get().problems(0).text();
  EXPECT_THAT(text, AllOf(StartsWith("bwd_data,x=4x8x8x8,"), HasSubstr(",nchw,f32")));
}

TEST_F(BatchTest, SeveralFilesAreReadInOrder) {
  std::ofstream(daemon_.folder() + "/a.txt") << ProblemText(8) << "\n";
  std::ofstream(daemon_.folder() + "/b.txt") << ProblemText(16) << "\n";
  Get({"--file", daemon_.folder() + "/a.txt", "--file", daemon_.folder() + "/b.txt",
       ProblemText(32)});
  ASSERT_EQ(daemon_.last_get().problems_size(), 3);
  EXPECT_THAT(daemon_.last_get().problems(1).text(), HasSubstr("x=1x8x"));
  EXPECT_THAT(daemon_.last_get().problems(2).text(), HasSubstr("x=1x16x"));
}

TEST_F(BatchTest, MoreThanTenThousandProblemsAreSplit) {
  std::string list;
  for (int i = 0; i < 10'001; ++i) list += ProblemText(8) + "\n";
  const RunResult result = Get({"--file", "-", "--csv"}, list);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(daemon_.batch_gets(), 2);
  EXPECT_EQ(daemon_.last_get().problems_size(), 1);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 10'002);
}

TEST(ExitCodeTest, WorseFollowsTheOrder) {
  const app::ExitCode order[] = {app::ExitCode::kDone, app::ExitCode::kMiss, app::ExitCode::kFailed,
                                 app::ExitCode::kUsage, app::ExitCode::kUnreachable};
  for (size_t i = 0; i < 5; ++i) {
    for (size_t k = 0; k < 5; ++k) {
      EXPECT_EQ(app::Worse(order[i], order[k]), order[std::max(i, k)]);
    }
  }
}

TEST(ShortProblemTest, LeavesOutWhatIsReadAnyway) {
  EXPECT_EQ(
      input::ShortProblem("fwd,x=16x64x56x56,w=64x64x3x3,pad=1x1,stride=1x1,dilation=1x1,groups=1,"
                          "nhwc,f16,acc=f32"),
      "fwd,x=16x64x56x56,w=64x64x3x3,pad=1,nhwc,f16");
}

TEST(ShortProblemTest, IsReadAsTheSameProblem) {
  for (const char* text :
       {"bwd_filter,x=2x8x9x9,w=8x4x3x5,pad=1:0x2:1,stride=2x1,groups=2,nchw,f32",
        "fwd,x=1x8x4x8x8,w=8x8x3x3x3,pad=1,dilation=2,nhwc,bf16,out=f32",
        "fwd,x=1x8x8x8,w=8x8x3x3,i8", "fwd,x=1x8x8x8,w=8x8x3x3,f16,acc=f16,align=4,mode=conv"}) {
    const auto problem = ConvProblem::Parse(text);
    ASSERT_TRUE(problem.ok()) << text << ": " << problem.status();
    const std::string shorter = input::ShortProblem(problem->ToText());
    EXPECT_LE(shorter.size(), problem->ToText().size());
    EXPECT_EQ(*ConvProblem::Parse(shorter), *problem) << shorter;
  }
}

TEST(ShortProblemTest, LeavesWhatItCannotReadAlone) {
  EXPECT_EQ(input::ShortProblem("from a newer daemon"), "from a newer daemon");
  EXPECT_EQ(input::ShortProblem(""), "");
}

std::string TableText(const AnswerRow& row) {
  const auto fields_of = [](const AnswerRow& one) { return AnswerFields(one, {}); };
  return output::TableOf(std::vector<AnswerRow>{row}, fields_of).Render(0, false);
}

TEST(AnswerTableTest, AMissShowsItsJobAndItsHint) {
  AnswerRow row;
  v1::Miss* miss = row.result.mutable_miss();
  miss->set_reason(v1::MISS_REASON_NOT_FOUND);
  miss->set_job("jobs/7");
  miss->mutable_hint()->set_environment("nvidia-h200");
  miss->mutable_hint()->mutable_winner()->set_text("graph:eng9");
  for (const auto& [environment, source] : std::vector<std::pair<std::string, std::string>>{
           {"", "nvidia-h200"},
           {"nvidia-h200,cc=9.0,sms=132,cudnn=9.12.0,lib=full", "cuDNN 9.12.0 (nvidia-h200)"},
           {"from a newer daemon", "nvidia-h200"}}) {
    miss->mutable_hint()->set_environment_text(environment);
    const std::string out = TableText(row);
    EXPECT_THAT(out, HasSubstr(absl::StrCat("not found; queued as jobs/7; hint from ", source,
                                            ": graph:eng9")));
  }
}

TEST(AnswerTableTest, APinIsShown) {
  AnswerRow row;
  row.result.mutable_answer()->set_evidence(v1::EVIDENCE_MEASURED);
  row.result.mutable_answer()->set_pinned(true);
  EXPECT_THAT(TableText(row), HasSubstr("measured, pinned"));
}

}  // namespace
}  // namespace convtune::cli::calls
