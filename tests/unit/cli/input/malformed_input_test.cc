// Each of these ends with 2, and names the field and the rule on stderr.
#include <gtest/gtest.h>

#include <ostream>

#include "tests/unit/cli/fake_daemon.h"

namespace convtune::cli::input {
namespace {

struct Case {
  const char* name;
  std::vector<std::string> arguments;
  std::string in;
  std::vector<std::string> words;  // all of them are on stderr
};

const char kGood[] = "fwd,x=1x8x8x8,w=8x8x3x3,pad=1";

void PrintTo(const Case& test, std::ostream* os) { *os << test.name; }

class MalformedInputTest : public testing::TestWithParam<Case> {};

TEST_P(MalformedInputTest, EndsWithUsageAndNamesFieldAndRule) {
  RunOptions options;
  options.in = GetParam().in;
  options.env["CONVTUNE_ADDRESS"] = "unix:/nonexistent/socket";
  const RunResult result = RunProgram(GetParam().arguments, options);
  EXPECT_EQ(result.code, 2) << result.err;
  for (const std::string& word : GetParam().words) {
    EXPECT_NE(result.err.find(word), std::string::npos) << "no '" << word << "' in: " << result.err;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Problems, MalformedInputTest,
    testing::Values(
        Case{"UnknownOperation",
             {"get", "forward,x=1x8x8x8,w=8x8x3x3"},
             "",
             {"argument 1", "forward"}},
        Case{"EmptyArgument", {"get", ""}, "", {"error: argument 1: must be a problem, is empty"}},
        Case{"NoSuchFileToGet",
             {"get", "--file", "/nope"},
             "",
             {"error: /nope: cannot be read: No such"}},
        Case{"NoSuchFileToWarm", {"warm", "/nope"}, "", {"error: /nope: cannot be read: No such"}},
        Case{"NothingToWarm", {"warm"}, "", {"error: FILE is required"}},
        Case{"NoInput", {"get", "fwd,w=8x8x3x3"}, "", {"argument 1", "x"}},
        Case{"NoFilter", {"get", "fwd,x=1x8x8x8"}, "", {"argument 1", "w"}},
        Case{"ZeroDimension", {"get", "fwd,x=1x0x8x8,w=8x8x3x3"}, "", {"argument 1", "x"}},
        Case{"NegativeDimension", {"get", "fwd,x=1x-8x8x8,w=8x8x3x3"}, "", {"argument 1", "x"}},
        Case{"OverflowingDimension",
             {"get", "fwd,x=1x99999999999999999999x8x8,w=8x8x3x3"},
             "",
             {"argument 1", "x"}},
        Case{"NegativePad", {"get", "fwd,x=1x8x8x8,w=8x8x3x3,pad=-1"}, "", {"argument 1", "pad"}},
        Case{"ZeroStride",
             {"get", "fwd,x=1x8x8x8,w=8x8x3x3,stride=0"},
             "",
             {"argument 1", "stride"}},
        Case{"GroupsDoNotDivide",
             {"get", "fwd,x=1x8x8x8,w=8x2x3x3,groups=3"},
             "",
             {"argument 1", "groups"}},
        Case{"UnknownToken",
             {"get", "fwd,x=1x8x8x8,w=8x8x3x3,colour=red"},
             "",
             {"argument 1", "colour"}},
        Case{"DoubledToken",
             {"get", "fwd,x=1x8x8x8,w=8x8x3x3,pad=1,pad=1"},
             "",
             {"argument 1", "pad"}},
        Case{"VanishingOutput", {"get", "fwd,x=1x8x2x2,w=8x8x3x3"}, "", {"argument 1"}},
        Case{"Empty", {"get", ""}, "", {"argument 1"}},
        Case{"InvalidUtf8", {"get", "fwd,x=1x8x8x8,w=8x8x3x3,\xff\xfe"}, "", {"argument 1"}},
        Case{"SecondIsWrong", {"get", "fwd,x=2", "fwd,x=1"}, "", {"argument 2"}},
        Case{"NoProblem", {"get"}, "", {"PROBLEM", "at least one"}},
        Case{"EmptyStdin", {"get", "--file", "-"}, "", {"stdin"}},
        Case{"BadLineOfStdin",
             {"get", "--file", "-"},
             "nonsense\nfwd,w=8x8x3x3\n",
             {"stdin:2", "x"}},
        Case{"BadCsvCell",
             {"get", "--file", "-", "--op", "fwd"},
             "problem,count\n\"fwd,x=1x1x1x1,w=1x1x1x1\",three\n",
             {"stdin:2"}},
        Case{"CsvWithoutAColumn",
             {"get", "--file", "-", "--op", "fwd"},
             "model,count\nresnet50,3\n",
             {"stdin"}},
        Case{"BadJson", {"get", "--file", "-"}, "{\"operation\": \n", {"stdin:1"}},
        Case{"JsonWithAnUnknownField",
             {"get", "--file", "-"},
             "{\"colour\": 1}\n",
             {"stdin:1", "colour"}},
        Case{"NoSuchFile",
             {"get", "--file", "/nonexistent/list.csv"},
             "",
             {"error: /nonexistent/list.csv: cannot be read"}},
        Case{"FolderAsFile",
             {"get", "--file", "/"},
             "",
             {"error: /: must be a file, is a directory"}},
        Case{"ExplainOfNothing", {"explain"}, "", {"problem"}},
        Case{"ExplainOfNonsense", {"explain", "nonsense"}, "", {"PROBLEM"}},
        Case{"PinOfNonsense", {"pin", kGood, "engine 5", "--reason", "r"}, "", {"CANDIDATE"}}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Options, MalformedInputTest,
    testing::Values(
        Case{"NoVerb", {}, "", {"subcommand"}}, Case{"UnknownVerb", {"fetch"}, "", {"fetch"}},
        Case{"UnknownOption", {"get", kGood, "--colour"}, "", {"--colour"}},
        Case{"JobsWithoutAVerb", {"jobs"}, "", {"needs one of"}},
        Case{"WorkspaceWithoutUnit",
             {"get", kGood, "--max-workspace", "64"},
             "",
             {"--max-workspace", "unit"}},
        Case{"WorkspaceNegative",
             {"get", kGood, "--max-workspace=-1B"},
             "",
             {"--max-workspace", "whole number"}},
        Case{"WorkspaceWithoutNumber",
             {"get", kGood, "--max-workspace", "MiB"},
             "",
             {"--max-workspace", "is 'MiB'"}},
        Case{"WorkspaceWithASpace",
             {"get", kGood, "--max-workspace", "1 MiB"},
             "",
             {"--max-workspace", "is '1 MiB'"}},
        Case{"WorkspaceOfAnotherUnit",
             {"get", kGood, "--max-workspace", "64mib"},
             "",
             {"--max-workspace", "MiB"}},
        Case{"WorkspaceThatIsNotWhole",
             {"get", kGood, "--max-workspace", "1.5MiB"},
             "",
             {"--max-workspace", "1.5"}},
        Case{"WorkspaceOverflows",
             {"get", kGood, "--max-workspace", "9999999999GiB"},
             "",
             {"--max-workspace", "2^63"}},
        Case{"UnknownApi", {"get", kGood, "--api", "vulkan"}, "", {"--api", "graph"}},
        Case{"UnknownLaunch", {"get", kGood, "--launch", "later"}, "", {"--launch", "eager"}},
        Case{"UnknownOnMiss", {"get", kGood, "--on-miss", "cry"}, "", {"--on-miss", "enqueue"}},
        Case{"UnknownEvidence",
             {"get", kGood, "--min-evidence", "sure"},
             "",
             {"--min-evidence", "measured"}},
        Case{"AgeThatIsNone", {"get", kGood, "--max-age", "old"}, "", {"--max-age", "30m"}},
        Case{"UnknownDtype", {"get", kGood, "--dtype", "f8"}, "", {"--dtype", "e4m3"}},
        Case{"BatchesThatGoDown", {"get", kGood, "--batch", "8..1"}, "", {"--batch: must go up"}},
        Case{"BracketsOfNoPair", {"get", "fwd,x=[1x8x8x8,w=8x8x3x3"}, "", {"x: brackets must"}},
        Case{"SeveralWhereOneIsMeant",
             {"explain", "fwd,x=[1,2]x8x8x8,w=8x8x3x3"},
             "",
             {"PROBLEM: must be one problem"}},
        Case{"DimWithoutAModel", {"get", kGood, "--dim", "h=8"}, "", {"--dim: must come with an"}},
        Case{"UnknownRuntime", {"get", kGood, "--runtime", "mxnet"}, "", {"--runtime", "torch"}},
        Case{"ZeroBatch", {"get", kGood, "--batch", "0"}, "", {"--batch", "from 1"}},
        Case{"BatchNotANumber", {"get", kGood, "--batch", "many"}, "", {"--batch", "whole number"}},
        Case{"JsonAndCsv", {"get", kGood, "--json", "--csv"}, "", {"--csv", "--json"}},
        Case{"BudgetWithoutUnit", {"tune", kGood, "--budget", "2"}, "", {"--budget", "500ms"}},
        Case{"BudgetTooLong", {"tune", kGood, "--budget", "2h"}, "", {"--budget", "1h"}},
        Case{"MemoryBudgetTooLarge",
             {"tune", kGood, "--memory-budget", "9999999GiB"},
             "",
             {"--memory-budget", "2^50"}},
        Case{"TooManyCandidates",
             {"tune", kGood, "--max-candidates", "100001"},
             "",
             {"--max-candidates", "100000"}},
        Case{"UnknownSearch", {"tune", kGood, "--search", "deep"}, "", {"--search", "exhaustive"}},
        Case{"PinWithoutReason", {"pin", kGood, "graph:eng1"}, "", {"--reason"}},
        Case{"PinWithAShortTtl",
             {"pin", kGood, "graph:eng1", "--reason", "r", "--ttl", "5ms"},
             "",
             {"--ttl", "1s"}},
        Case{"JobIsNoNumber", {"jobs", "show", "latest"}, "", {"JOB", "number"}},
        Case{"UnknownShell", {"completion", "csh"}, "", {"shell", "bash"}},
        Case{"AddressWithoutPort",
             {"list", "--address", "localhost"},
             "",
             {"--address", "HOST:PORT"}},
        Case{"AddressWithAPortOutOfRange",
             {"list", "--address", "localhost:65536"},
             "",
             {"--address", "port"}},
        Case{"AddressWithALongPath",
             {"list", "--address", "unix:/" + std::string(107, 'a')},
             "",
             {"--address", "107"}},
        Case{"AddressWithABareIpv6Host",
             {"list", "--address", "::1:50051"},
             "",
             {"--address", "brackets"}},
        Case{"TcpWithoutTls", {"list", "--address", "localhost:50051"}, "", {"tls_ca", "PEM"}},
        Case{"TimeoutNegative", {"list", "--timeout", "-5s"}, "", {"--timeout", "positive"}},
        Case{"NoSuchConfig",
             {"list", "--config", "/nonexistent/c.toml"},
             "",
             {"config", "/nonexistent/c.toml"}}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace convtune::cli::input
