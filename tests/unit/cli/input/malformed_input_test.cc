// Each of these ends with 2, and names the field and the rule on stderr.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>

#include "tests/unit/cli/fake_daemon.h"

namespace convtune::cli::input {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Case {
  const char* name;
  std::vector<std::string> arguments;
  std::vector<std::string> words;  // all of them are on stderr
  std::string in = {};
};

void PrintTo(const Case& test, std::ostream* os) { *os << test.name; }

class MalformedInputTest : public testing::TestWithParam<Case> {};

TEST_P(MalformedInputTest, EndsWithUsageAndNamesFieldAndRule) {
  const RunResult result =
      RunProgram(GetParam().arguments,
                 {.in = GetParam().in, .env = {{"CONVTUNE_ADDRESS", "unix:/nonexistent/socket"}}});
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, StartsWith("error: "));
  for (const std::string& word : GetParam().words) EXPECT_THAT(result.err, HasSubstr(word));
}

const char kGood[] = "fwd,x=1x8x8x8,w=8x8x3x3,pad=1";

const Case kProblems[] = {
    {"UnknownOperation", {"get", "forward,x=1x8x8x8,w=8x8x3x3"}, {"argument 1", "forward"}},
    {"EmptyArgument", {"get", ""}, {"error: argument 1: must be a problem, is empty"}},
    {"SecondIsWrong", {"get", "fwd,x=2", "fwd,x=1"}, {"argument 2"}},
    {"NoProblem", {"get"}, {"PROBLEM", "at least one"}},
    {"BadLineOfStdin", {"get", "--file", "-"}, {"stdin:2", "x"}, "nonsense\nfwd,w=8x8x3x3\n"},
    {"CsvWithoutAColumn",
     {"get", "--file", "-", "--op", "fwd"},
     {"stdin"},
     "model,count\nresnet50,3\n"},
    {"NoSuchFileToGet", {"get", "--file", "/nope"}, {"error: /nope: cannot be read: No such"}},
    {"NoSuchFileToWarm", {"warm", "/nope"}, {"error: /nope: cannot be read: No such"}},
    {"FolderAsFile", {"get", "--file", "/"}, {"error: /: must be a file, is a directory"}},
    {"NothingToWarm", {"warm"}, {"error: FILE is required"}},
    {"BracketsOfNoPair", {"get", "fwd,x=[1x8x8x8,w=8x8x3x3"}, {"x: brackets must"}},
    {"SeveralWhereOneIsMeant",
     {"explain", "fwd,x=[1,2]x8x8x8,w=8x8x3x3"},
     {"PROBLEM: must be one problem"}},
    {"ExplainOfNothing", {"explain"}, {"problem"}},
    {"ExplainOfNonsense", {"explain", "nonsense"}, {"PROBLEM"}},
    {"PinOfNonsense", {"pin", kGood, "engine 5", "--reason", "r"}, {"CANDIDATE"}}};

const Case kOptions[] = {
    {"NoVerb", {}, {"subcommand"}},
    {"UnknownVerb", {"gett"}, {"'gett' is no command that there is\nRun with --help for more"}},
    {"UnknownOption", {"get", kGood, "--colour"}, {"--colour"}},
    {"OptionInFrontOfItsVerb", {"--min-evidence", "measured", "get", kGood}, {"--min-evidence"}},
    {"VersionInAProgramsPlace",
     {"run", "python", "--version"},
     {"error: --version: must stand without a command; "}},
    {"JobsWithoutAVerb", {"jobs"}, {"needs one of list, show, watch, cancel"}},
    {"WorkspaceWithoutUnit",
     {"get", kGood, "--max-workspace", "64"},
     {"--max-workspace", "whole number and a unit", "is '64'"}},
    {"UnknownApi", {"get", kGood, "--api", "vulkan"}, {"--api", "graph"}},
    {"UnknownLaunch", {"get", kGood, "--launch", "later"}, {"--launch", "eager"}},
    {"UnknownOnMiss", {"get", kGood, "--on-miss", "cry"}, {"--on-miss", "enqueue"}},
    {"UnknownEvidence", {"get", kGood, "--min-evidence", "sure"}, {"--min-evidence", "measured"}},
    {"AgeThatIsNone", {"get", kGood, "--max-age", "old"}, {"--max-age", "30m"}},
    {"UnknownDtype", {"get", kGood, "--dtype", "f8"}, {"--dtype", "e4m3"}},
    {"BatchesThatGoDown", {"get", kGood, "--batch", "8..1"}, {"--batch: must go up"}},
    {"ZeroBatch", {"get", kGood, "--batch", "0"}, {"--batch", "from 1"}},
    {"BatchNotANumber", {"get", kGood, "--batch", "many"}, {"--batch", "whole number"}},
    {"DimWithoutAModel", {"get", kGood, "--dim", "h=8"}, {"--dim: must come with an"}},
    {"UnknownRuntime", {"get", kGood, "--runtime", "mxnet"}, {"--runtime", "torch"}},
    {"JsonAndCsv", {"get", kGood, "--json", "--csv"}, {"--csv", "--json"}},
    {"CsvOfNoRows", {"--csv", "doctor"}, {"error: --csv: this command prints no rows\n"}},
    {"CsvOfNoRowsBehind", {"db", "check", "--csv"}, {"--csv: this command prints no rows\n"}},
    {"BudgetWithoutUnit", {"tune", kGood, "--budget", "2"}, {"--budget", "500ms"}},
    {"BudgetTooLong", {"tune", kGood, "--budget", "2h"}, {"--budget", "1h"}},
    {"MemoryBudgetTooLarge",
     {"tune", kGood, "--memory-budget", "9999999GiB"},
     {"--memory-budget", "2^50"}},
    {"WaitTooLong", {"advise", kGood, "--wait-idle", "2h"}, {"--wait-idle: must be at most 1h"}},
    {"TotalBudgetTooShort", {"warm", "-", "--budget-total", "999ms"}, {"--budget-total: must be"}},
    {"TooManyCandidates",
     {"tune", kGood, "--max-candidates", "100001"},
     {"--max-candidates", "100000"}},
    {"UnknownSearch", {"tune", kGood, "--search", "deep"}, {"--search", "exhaustive"}},
    {"AdviseOfAnUnknownDtype",
     {"advise", kGood, "--dtypes", "f17"},
     {"--dtypes: f17 not in {f64,f32,f16,bf16,i8,e4m3,e5m2}"}},
    {"AdviseOfAZeroBatch", {"advise", kGood, "--batches", "8,0"}, {"--batches"}},
    {"PinWithoutReason", {"pin", kGood, "graph:eng1"}, {"--reason"}},
    {"PinWithAShortTtl",
     {"pin", kGood, "graph:eng1", "--reason", "r", "--ttl", "5ms"},
     {"--ttl", "1s"}},
    {"BanOfNothing", {"ban"}, {}},
    {"BanWithoutReason", {"ban", "eng1"}, {"--reason"}},
    {"BanOfAnUnknownDtype", {"ban", "eng1", "--reason", "x", "--dtype", "f17"}, {"--dtype"}},
    {"BanThatExpiresNever", {"ban", "eng1", "--reason", "x", "--expires", "soon"}, {"--expires"}},
    {"BanOfAnUnknownOperation", {"ban", "eng1", "--reason", "x", "--op", "backward"}, {"--op"}},
    {"BanOfErrataAndMore", {"ban", "eng1", "--errata", "f.json", "--reason", "x"}, {"--errata"}},
    {"NoSuchErrata", {"ban", "--errata", "/nonexistent/f.json"}, {"/nonexistent/f.json"}},
    {"CanaryOfAll", {"release", "promote", "--canary=100%"}, {"--canary: must be"}},
    {"RunOfNothing", {"run"}, {}},
    {"UnknownPolicy", {"run", "--policy", "maybe", "--", "true"}, {"--policy"}},
    {"NoSuchLibrary", {"run", "--library", "/nonexistent/l.so", "--", "true"}, {"--library:"}},
    {"JobIsNoNumber", {"jobs", "show", "latest"}, {"JOB", "number"}},
    {"UnknownShell", {"completion", "csh"}, {"shell", "bash"}},
    {"AddressWithoutPort", {"list", "--address", "localhost"}, {"--address", "HOST:PORT"}},
    {"TcpWithoutTls", {"list", "--address", "localhost:50051"}, {"tls_ca", "PEM"}},
    {"TimeoutNegative", {"list", "--timeout", "-5s"}, {"--timeout", "positive"}},
    {"NoSuchConfig",
     {"list", "--config", "/nonexistent/c.toml"},
     {"config", "/nonexistent/c.toml"}}};

std::string Name(const testing::TestParamInfo<Case>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Problems, MalformedInputTest, testing::ValuesIn(kProblems), Name);
INSTANTIATE_TEST_SUITE_P(Options, MalformedInputTest, testing::ValuesIn(kOptions), Name);

}  // namespace
}  // namespace convtune::cli::input
