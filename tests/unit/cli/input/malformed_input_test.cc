// Each of these ends with 2, and names the field and the rule on stderr.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"
#include "tests/unit/cli/fake_daemon.h"

namespace convtune::cli::input {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Case {
  std::vector<std::string> arguments;
  std::vector<std::string> words;  // all of them are on stderr
  std::string in = {};
};

void ExpectRefused(const std::vector<Case>& cases) {
  for (const auto& [arguments, words, in] : cases) {
    SCOPED_TRACE(absl::StrJoin(arguments, " "));
    const RunResult result = RunProgram(
        arguments, {.in = in, .env = {{"CONVTUNE_ADDRESS", "unix:/nonexistent/socket"}}});
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, StartsWith("error: "));
    for (const std::string& word : words) EXPECT_THAT(result.err, HasSubstr(word));
  }
}

const char kGood[] = "fwd,x=1x8x8x8,w=8x8x3x3,pad=1";

TEST(MalformedInputTest, ProblemsAndFilesEndWithUsageAndNameFieldAndRule) {
  ExpectRefused({
      {{"get", "forward,x=1x8x8x8,w=8x8x3x3"}, {"argument 1", "forward"}},
      {{"get", ""}, {"error: argument 1: must be a problem, is empty"}},
      {{"get", "fwd,x=2", "fwd,x=1"}, {"argument 2"}},
      {{"get"}, {"PROBLEM", "at least one"}},
      {{"get", "--file", "-"}, {"stdin:2", "x"}, "nonsense\nfwd,w=8x8x3x3\n"},
      {{"get", "--file", "-", "--op", "fwd"}, {"stdin"}, "model,count\nresnet50,3\n"},
      {{"get", "--file", "/nope"}, {"error: /nope: cannot be read: No such"}},
      {{"warm", "/nope"}, {"error: /nope: cannot be read: No such"}},
      {{"get", "--file", "/"}, {"error: /: must be a file, is a directory"}},
      {{"warm"}, {"error: FILE is required"}},
      {{"get", "fwd,x=[1x8x8x8,w=8x8x3x3"}, {"x: brackets must"}},
      {{"explain", "fwd,x=[1,2]x8x8x8,w=8x8x3x3"}, {"PROBLEM: must be one problem"}},
      {{"explain"}, {"problem"}},
      {{"explain", "nonsense"}, {"PROBLEM"}},
      {{"pin", kGood, "engine 5", "--reason", "r"}, {"CANDIDATE"}},
  });
}

TEST(MalformedInputTest, OptionsEndWithUsageAndNameFieldAndRule) {
  ExpectRefused({
      {{}, {"subcommand"}},
      {{"gett"}, {"'gett' is no command that there is\nRun with --help for more"}},
      {{"get", kGood, "--colour"}, {"--colour"}},
      {{"--min-evidence", "measured", "get", kGood}, {"--min-evidence"}},
      {{"run", "python", "--version"}, {"error: --version: must stand without a command; "}},
      {{"jobs"}, {"needs one of list, show, watch, cancel"}},
      {{"get", kGood, "--max-workspace", "64"},
       {"--max-workspace", "whole number and a unit", "is '64'"}},
      {{"get", kGood, "--api", "vulkan"}, {"--api", "graph"}},
      {{"get", kGood, "--launch", "later"}, {"--launch", "eager"}},
      {{"get", kGood, "--on-miss", "cry"}, {"--on-miss", "enqueue"}},
      {{"get", kGood, "--min-evidence", "sure"}, {"--min-evidence", "measured"}},
      {{"get", kGood, "--max-age", "old"}, {"--max-age", "30m"}},
      {{"get", kGood, "--dtype", "f8"}, {"--dtype", "e4m3"}},
      {{"get", kGood, "--batch", "8..1"}, {"--batch: must go up"}},
      {{"get", kGood, "--batch", "0"}, {"--batch", "from 1"}},
      {{"get", kGood, "--batch", "many"}, {"--batch", "whole number"}},
      {{"get", kGood, "--dim", "h=8"}, {"--dim: must come with an"}},
      {{"get", kGood, "--runtime", "mxnet"}, {"--runtime", "torch"}},
      {{"get", kGood, "--json", "--csv"}, {"--csv", "--json"}},
      {{"--csv", "doctor"}, {"error: --csv: this command prints no rows\n"}},
      {{"db", "check", "--csv"}, {"--csv: this command prints no rows\n"}},
      {{"tune", kGood, "--budget", "2"}, {"--budget", "500ms"}},
      {{"tune", kGood, "--budget", "2h"}, {"--budget", "1h"}},
      {{"tune", kGood, "--memory-budget", "9999999GiB"}, {"--memory-budget", "2^50"}},
      {{"advise", kGood, "--wait-idle", "2h"}, {"--wait-idle: must be at most 1h"}},
      {{"warm", "-", "--budget-total", "999ms"}, {"--budget-total: must be"}},
      {{"tune", kGood, "--max-candidates", "100001"}, {"--max-candidates", "100000"}},
      {{"tune", kGood, "--search", "deep"}, {"--search", "exhaustive"}},
      {{"advise", kGood, "--dtypes", "f17"},
       {"--dtypes: f17 not in {f64,f32,f16,bf16,i8,e4m3,e5m2}"}},
      {{"advise", kGood, "--batches", "8,0"}, {"--batches"}},
      {{"pin", kGood, "graph:eng1"}, {"--reason"}},
      {{"pin", kGood, "graph:eng1", "--reason", "r", "--ttl", "5ms"}, {"--ttl", "1s"}},
      {{"ban"}, {}},
      {{"ban", "eng1"}, {"--reason"}},
      {{"ban", "eng1", "--reason", "x", "--dtype", "f17"}, {"--dtype"}},
      {{"ban", "eng1", "--reason", "x", "--expires", "soon"}, {"--expires"}},
      {{"ban", "eng1", "--reason", "x", "--op", "backward"}, {"--op"}},
      {{"ban", "eng1", "--errata", "f.json", "--reason", "x"}, {"--errata"}},
      {{"ban", "--errata", "/nonexistent/f.json"}, {"/nonexistent/f.json"}},
      {{"release", "promote", "--canary=100%"}, {"--canary: must be"}},
      {{"run"}, {}},
      {{"run", "--policy", "maybe", "--", "true"}, {"--policy"}},
      {{"run", "--library", "/nonexistent/l.so", "--", "true"}, {"--library:"}},
      {{"jobs", "show", "latest"}, {"JOB", "number"}},
      {{"completion", "csh"}, {"shell", "bash"}},
      {{"list", "--address", "localhost"}, {"--address", "HOST:PORT"}},
      {{"list", "--address", "localhost:50051"}, {"tls_ca", "PEM"}},
      {{"list", "--timeout", "-5s"}, {"--timeout", "positive"}},
      {{"list", "--config", "/nonexistent/c.toml"}, {"config", "/nonexistent/c.toml"}},
  });
}

}  // namespace
}  // namespace convtune::cli::input
