// The verbs other than get, tune and doctor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/app/program.h"
#include "tests/unit/cli/fake_daemon.h"

namespace convtune::cli::commands {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CommandsTest : public DaemonTest {};

TEST_F(CommandsTest, ListReadsEveryPage) {
  for (int i = 0; i < 5; ++i) {
    v1::Tuning tuning;
    tuning.set_problem_text(ProblemText(8 * (i + 1)));
    tuning.set_evidence(v1::EVIDENCE_MEASURED);
    daemon_.tunings.push_back(tuning);
  }
  const RunResult result = Run({"list"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("x=1x8x"));
  EXPECT_THAT(result.out, HasSubstr("x=1x40x"));
  EXPECT_EQ(result.err, "5 tunings\n");
}

TEST_F(CommandsTest, AnEmptyListIsDone) {
  const RunResult result = Run({"list"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "");
}

TEST_F(CommandsTest, AnUpgradeIsOfOneEnvironmentsTunings) {
  const std::string text = "nvidia-h200,cc=9.0,sms=132,cudnn=9.12.0,lib=full";
  for (const char* patch : {"9.12.0", "9.19.0"}) {
    v1::Tuning tuning;
    tuning.set_problem_text(ProblemText(8));
    tuning.mutable_environment()->set_name("nvidia-h200");
    tuning.mutable_environment()->set_text(
        absl::StrCat("nvidia-h200,cc=9.0,sms=132,cudnn=", patch, ",lib=full"));
    daemon_.tunings.push_back(tuning);
  }
  const RunResult result = Run({"upgrade-check", "--to", "/", "--worker", "/bin/true"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("--environment: must be one of " + text + "; nvidia-h200,cc="));
}

TEST_F(CommandsTest, ExplainShowsEveryCandidateAndWhy) {
  v1::Candidate* winner = daemon_.tuning.add_candidates();
  winner->set_text("graph:eng34,k2=5");
  winner->set_status(v1::CANDIDATE_STATUS_TIMED);
  winner->set_median_us(12.5);
  winner->add_numerical_notes(v1::NUMERICAL_NOTE_TENSOR_CORE);
  v1::Candidate* refused = daemon_.tuning.add_candidates();
  refused->set_text("legacy:algo4,math0");
  refused->mutable_legacy_algorithm()->set_algorithm(4);
  refused->set_status(v1::CANDIDATE_STATUS_UNSUPPORTED);
  refused->set_error_message("first line\nsecond line");
  const RunResult result = Run({"explain", ProblemText(8)});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("tensor-core"));
  EXPECT_THAT(result.out, HasSubstr("unsupported"));
  EXPECT_THAT(result.out, HasSubstr("first line"));
  EXPECT_THAT(result.out, Not(HasSubstr("second line")));
  EXPECT_THAT(result.out, HasSubstr("The winner is graph:eng34,k2=5."));
  EXPECT_THAT(Run({"explain", ProblemText(8), "--csv"}).out, HasSubstr("second line"));
  EXPECT_TRUE(nlohmann::json::accept(Run({"explain", ProblemText(8), "--json"}).out));
}

TEST_F(CommandsTest, ExplainOnANarrowTerminalShowsErrorsWhole) {
  v1::Candidate* refused = daemon_.tuning.add_candidates();
  refused->set_text("graph:eng5,k4=0,k5=0,k13=1");
  refused->set_status(v1::CANDIDATE_STATUS_UNSUPPORTED);
  const std::string words =
      "CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH: the engine needs another GPU";
  refused->set_error_message(words);
  const std::string out = Run({"explain", ProblemText(8)},
                              {.terminal = true, .columns = 80, .env = {{"NO_COLOR", "1"}}})
                              .out;
  EXPECT_THAT(out, HasSubstr(words));
  const size_t begin = out.find("RANK");
  const std::string table = out.substr(begin, out.find("\n\n", begin) - begin);
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(table, '\n'))) {
    EXPECT_LE(line.size(), 80U) << line;
  }
}

TEST_F(CommandsTest, ExplainNamesEachColumnOfCsvOnce) {
  const std::string csv = Run({"explain", ProblemText(8), "--csv"}).out;
  const std::vector<std::string> names = absl::StrSplit(csv.substr(0, csv.find('\n')), ',');
  EXPECT_EQ(names.back(), "message");
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size()) << csv;
}

TEST_F(CommandsTest, ExplainOfAnUnknownProblemEndsWithThree) {
  daemon_.misses["x=1x8x"] = v1::MISS_REASON_NOT_FOUND;
  EXPECT_EQ(Run({"explain", ProblemText(8)}).code, 3);
}

TEST_F(CommandsTest, PinSaysUntilWhen) {
  const RunResult result = Run({"pin", ProblemText(8), "graph:eng1", "--reason", "r"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("pinned graph:eng1 in nvidia-h200 until unpinned"));
}

TEST_F(CommandsTest, PinsAreListedWithTheirReason) {
  daemon_.pinned.set_problem_text(ProblemText(8));
  daemon_.pinned.set_reason("bit-exact release");
  EXPECT_THAT(Run({"list", "--pins"}).out, HasSubstr("bit-exact release"));
  EXPECT_EQ(Run({"list", "--pins", "--filter", "x=1x9x"}).out, "");
}

TEST_F(CommandsTest, UnpinOfNothingEndsWithThree) {
  daemon_.error = {grpc::StatusCode::NOT_FOUND, "no pin"};
  EXPECT_EQ(Run({"unpin", ProblemText(8)}).code, 3);
}

TEST_F(CommandsTest, DeleteOfWhatIsNotThereEndsWithThree) {
  daemon_.deleted = 1;
  EXPECT_EQ(Run({"delete", ProblemText(8), ProblemText(8)}).code, 0);
  EXPECT_EQ(Run({"delete", ProblemText(8), ProblemText(16)}).code, 3);
}

TEST_F(CommandsTest, EnvironmentsShowDevices) {
  const RunResult result = Run({"environments"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("nvidia-h200"));
  EXPECT_THAT(result.out, HasSubstr("gpu:0"));
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(Run({"environments", "--environment", "other"}).code, 3);
  v1::Environment old = daemon_.environments.environments(0);
  old.set_text("nvidia-h200,cc=9.0,sms=132,cudnn=9.12.0,lib=full");
  *daemon_.environments.add_environments() = old;
  const RunResult both = Run({"environments"});
  EXPECT_THAT(both.out, HasSubstr(old.text()));
  EXPECT_EQ(
      both.err,
      "2 environments have the name nvidia-h200: --environment takes the TEXT of one as well\n");
  const RunResult one = Run({"environments", "--environment", old.text()});
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(one.err, "");
}

TEST_F(CommandsTest, EnvironmentsShowWhatWorkersFoundOfThemselves) {
  EXPECT_THAT(Run({"environments"}).out, HasSubstr("not run"));
  v1::SelfCheck* check = daemon_.devices.mutable_devices(0)->mutable_self_check();
  check->set_known(true);
  check->set_details("clock: works");
  EXPECT_THAT(Run({"environments"}).out, HasSubstr("passed"));
  check->add_failed("clock");
  check->add_failed("captures");
  EXPECT_THAT(Run({"environments"}).out, HasSubstr("failed: clock captures"));
  const std::string json = Run({"environments", "--json"}).out;
  EXPECT_THAT(json, HasSubstr(R"("failed":["clock","captures"])"));
  EXPECT_THAT(json, HasSubstr(R"("details":"clock: works")"));
}

TEST_F(CommandsTest, JobsAreShownByNumber) {
  EXPECT_THAT(Run({"jobs", "list"}).out, HasSubstr("succeeded"));
  EXPECT_EQ(Run({"jobs", "show", "1"}).code, 0);
  EXPECT_EQ(Run({"jobs", "watch", "jobs/1"}).code, 0);
  EXPECT_EQ(Run({"jobs", "cancel", "1"}).code, 0);
  EXPECT_EQ(Run({"jobs", "show", "2"}).code, 3);
}

TEST_F(CommandsTest, WhatATuningMayCostReachesTheDaemon) {
  daemon_.misses["x"] = v1::MISS_REASON_NOT_FOUND;
  std::ofstream(daemon_.folder() + "/list.txt") << ProblemText(8) << "\n";
  int seconds = 0;
  for (const auto& [verb, what] :
       std::vector<std::pair<std::string, std::string>>{{"advise", ProblemText(8)},
                                                        {"tune", ProblemText(8)},
                                                        {"warm", daemon_.folder() + "/list.txt"}}) {
    Run({verb, what, "--budget", absl::StrCat(++seconds, "s"), "--memory-budget", "2GiB",
         "--wait-idle", "5m"});
    const v1::TuningOptions options = daemon_.last_create().options();
    EXPECT_EQ(options.time_budget().seconds(), seconds) << verb;
    EXPECT_EQ(options.memory_budget_bytes(), int64_t{2} << 30) << verb;
    EXPECT_EQ(options.wait_idle().seconds(), 300) << verb;
  }
}

TEST_F(CommandsTest, ADamagedDatabaseEndsWithOne) {
  EXPECT_EQ(Run({"db", "check"}).code, 0);
  daemon_.sound = false;
  const RunResult result = Run({"db", "check"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("checksum differs"));
}

TEST_F(CommandsTest, ACallThatAnOlderDaemonLacksIsExplained) {
  const RunResult result = Run({"db", "compact"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("older"));
}

TEST_F(CommandsTest, VersionNeedsNoDaemon) {
  EXPECT_EQ(RunProgram({"--version"}).code, 0);
  EXPECT_THAT(Run({"version"}).out, HasSubstr("convtuned " CONVTUNE_VERSION));
  const RunResult alone = RunProgram({"version", "--address", "unix:/nonexistent/socket"});
  EXPECT_EQ(alone.code, 0);
  EXPECT_EQ(alone.out, "convtune " CONVTUNE_VERSION "\n");
}

TEST_F(CommandsTest, JobsOfAnEnvironmentAreFoundByItsNameAndByItsText) {
  const std::string text = "nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full";
  for (const std::string& said : {std::string("nvidia-h200"), text}) {
    daemon_.states[0].set_environment(said);
    for (const std::string& wanted : {std::string("nvidia-h200"), text}) {
      EXPECT_EQ(Run({"jobs", "list", "--environment", wanted}).err, "1 job\n") << said << wanted;
    }
    EXPECT_EQ(Run({"jobs", "list", "--environment", "nvidia-l4"}).err, "0 jobs\n") << said;
  }
}

TEST_F(CommandsTest, EveryVerbHasJson) {
  daemon_.deleted = 1;
  const std::string problem = ProblemText(8);
  const std::vector<std::vector<std::string>> runs = {
      {"get", problem},
      {"tune", problem},
      {"explain", problem},
      {"list"},
      {"list", "--pins"},
      {"pin", problem, "graph:eng1", "--reason", "r"},
      {"unpin", problem},
      {"delete", problem},
      {"environments"},
      {"jobs", "list"},
      {"jobs", "show", "1"},
      {"jobs", "watch", "1"},
      {"jobs", "cancel", "1"},
      {"db", "check"},
      {"doctor"},
      {"doctor", "--report"},
      {"stats"},
      {"version"}};
  for (std::vector<std::string> arguments : runs) {
    arguments.push_back("--json");
    EXPECT_TRUE(nlohmann::json::accept(Run(arguments).out)) << arguments[0];
  }
}

// What can stand in the place of the last of `words`.
std::set<std::string> Completed(std::vector<std::string> words) {
  words.insert(words.begin(), {"completion", "bash", "--"});
  return absl::StrSplit(RunProgram(words).out, '\n', absl::SkipEmpty());
}

TEST(CompletionTest, WordsAreVerbsOptionsAndValues) {
  const std::set<std::string> verbs = Completed({""});
  for (const char* verb :
       {"get", "tune", "explain", "list", "pin", "unpin", "delete", "environments", "jobs", "db",
        "doctor", "version", "completion", "--address", "--json"}) {
    EXPECT_EQ(verbs.count(verb), 1U) << verb;
  }
  EXPECT_EQ(Completed({"jobs", "w"}).count("watch"), 1U);
  const std::set<std::string> options = Completed({"tune", "--"});
  for (const char* option : {"--max-workspace", "--search", "--op", "--address"}) {
    EXPECT_EQ(options.count(option), 1U) << option;
  }
  EXPECT_EQ(Completed({"get", "--min-evidence", ""}),
            (std::set<std::string>{"heuristic", "observed", "incomplete", "measured"}));
  EXPECT_EQ(Completed({"get", "--file", ""}), (std::set<std::string>{"FILES"}));
  EXPECT_EQ(Completed({"warm", "list", "x"}), (std::set<std::string>{"FILES"}));
  EXPECT_EQ(Completed({"why", "--cache", ""}), (std::set<std::string>{"FILES"}));
  EXPECT_EQ(Completed({"warm", "--m"}).count("--min-evidence"), 1U);
  EXPECT_EQ(Completed({"run", "--", "l"}), (std::set<std::string>{"FILES"}));
}

TEST(CompletionTest, EveryShellHasAScriptThatAsksTheProgram) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = RunProgram({"completion", shell}).out;
    EXPECT_THAT(script, HasSubstr(std::string("completion ") + shell + " -- "));
  }
  EXPECT_EQ(RunProgram({"completion", "fish", "--", "unpi"}).out.find("get\tthe best algorithm"),
            0U);
}

TEST_F(CommandsTest, CommonOptionsMayStandBeforeTheCommandAndBehindIt) {
  const std::string problem = ProblemText(8);
  const std::string address = "--address=" + daemon_.address();
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{address, "--json", "get", problem},
                                             {"get", problem, address, "--json"},
                                             {"--json", "get", address, problem},
                                             {address, "--json", "jobs", "list"},
                                             {"jobs", address, "--json", "list"},
                                             {"jobs", "list", "--json", address}}) {
    const RunResult result = RunProgram(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(nlohmann::json::accept(result.out)) << result.out;
  }
  EXPECT_EQ(RunProgram({"--csv", address, "get", problem}).out.substr(0, 12), "row,problem,");
}

TEST(HelpTest, EndsWithZeroGroupsTheCommandsAndNamesTheExitCodes) {
  const RunResult result = RunProgram({"--help"});
  EXPECT_EQ(result.code, 0);
  size_t at = 0;
  for (const char* part : {"Common options:", "--address", "Ask:", "  get ", "Tune:", "  tune ",
                           "Serve programs:", "  run ", "Move:", "  export ",
                           "Look after:", "  stats ", "4 daemon out of reach"}) {
    at = result.out.find(part, at);
    ASSERT_NE(at, std::string::npos) << part << " is missing, or too early:\n" << result.out;
  }
}

TEST(HelpTest, ACommandsHelpNamesTheCommonOptionsToo) {
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"get", "--help"}, {"jobs", "list", "--help"}}) {
    const RunResult result = RunProgram(command);
    EXPECT_EQ(result.code, 0);
    EXPECT_THAT(result.out, HasSubstr("--tls-key FILE"));
  }
}

class StatsTest : public CommandsTest {
 protected:
  StatsTest() {
    daemon_.info.set_pid(7);
    daemon_.info.mutable_start_time()->set_seconds(1'700'000'000);
    Count(10, 4);
    setenv("XDG_STATE_HOME", (daemon_.folder() + "/state").c_str(), 1);
  }
  ~StatsTest() override { unsetenv("XDG_STATE_HOME"); }

  void Count(int64_t lookups, int64_t hits) {
    daemon_.info.set_lookups(lookups);
    daemon_.info.set_hits(hits);
  }

  RunResult Stats(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--address", daemon_.address(), "stats"});
    return RunProgram(arguments);
  }
};

TEST_F(StatsTest, CountsHitsAndMisses) {
  const std::string text = Stats({}).out;
  EXPECT_THAT(text,
              HasSubstr("look-ups         10\nhits             4 (40.0%)\nmisses           6\n"));
  const std::string json = Stats({"--json"}).out;
  EXPECT_TRUE(nlohmann::json::accept(json));
  EXPECT_THAT(json, HasSubstr(R"("lookups":10,"hits":4,"misses":6,"workerRequests")"));
}

TEST_F(StatsTest, ZeroShowsThemAndCountsFromThenOnUntilTheDaemonStartsAnew) {
  EXPECT_THAT(Stats({"--zero"}).out, HasSubstr("look-ups         10\n"));
  Count(13, 6);
  const std::string since = Stats({}).out;
  EXPECT_THAT(
      since,
      HasSubstr(
          "counted since    the last --zero\nlook-ups         3\nhits             2 (66.7%)"));
  daemon_.info.set_pid(8);
  Count(1, 0);
  EXPECT_THAT(Stats({}).out,
              HasSubstr("counted since    2023-11-14 22:13:20Z\nlook-ups         1\n"));
}

TEST_F(StatsTest, EachDaemonHasItsZero) {
  FakeDaemon other;
  Stats({"--zero"});
  RunProgram({"--address", other.address(), "stats", "--zero"});
  EXPECT_THAT(Stats({}).out, HasSubstr("counted since    the last --zero\n"));
}

TEST_F(StatsTest, ListsTheNewestTuningsOfAllPages) {
  for (int i = 0; i < 5; ++i) {
    v1::Tuning tuning;
    tuning.set_problem_text(ProblemText(8 * (i + 1)));
    tuning.mutable_tune_time()->set_seconds(1000 + (i * 7) % 5);  // 0 2 4 1 3
    daemon_.tunings.push_back(tuning);
  }
  const std::string text = Stats({"--last", "2"}).out;
  const size_t newest = text.find("x=1x24x");
  EXPECT_NE(newest, std::string::npos) << text;
  EXPECT_GT(text.find("x=1x40x"), newest) << text;
  EXPECT_THAT(text, Not(HasSubstr("x=1x16x")));
}

}  // namespace
}  // namespace convtune::cli::commands
