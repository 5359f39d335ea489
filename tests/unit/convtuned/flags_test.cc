#include "server/convtuned/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "proto/base/variables.h"
#include "tests/unit/temp_dir.h"

namespace convtune::convtuned {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Sets a variable for one test.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~ScopedVariable() { unsetenv(name_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
};

class FlagsTest : public testing::Test {
 protected:
  std::string Config(const std::string& text) {
    std::ofstream(dir_.path("c.toml")) << text;
    return dir_.path("c.toml");
  }

  Flags Parse(const std::vector<std::string>& args) {
    const ParsedFlags parsed = ParseFlags(args);
    EXPECT_TRUE(parsed.flags.has_value()) << parsed.text;
    return parsed.flags.value_or(Flags());
  }

  std::string Error(const std::vector<std::string>& args) {
    const ParsedFlags parsed = ParseFlags(args);
    EXPECT_FALSE(parsed.flags.has_value());
    EXPECT_EQ(parsed.exit_code, 2);
    return parsed.text;
  }

  TempDir dir_;
};

TEST_F(FlagsTest, DefaultsAreComplete) {
  const Flags flags = Parse({});
  EXPECT_FALSE(flags.state_dir.empty());
  ASSERT_EQ(flags.listen.size(), 1u);
  EXPECT_THAT(flags.listen[0], testing::StartsWith("unix:/"));
  EXPECT_EQ(flags.devices, "all");
  EXPECT_THAT(flags.worker, testing::EndsWith("/convtune-worker"));
  EXPECT_EQ(flags.drain_timeout, absl::Seconds(10));
  EXPECT_FALSE(flags.once);
  EXPECT_FALSE(flags.json_log);
  EXPECT_EQ(flags.publish.floor, Evidence::kObserved);
  EXPECT_FALSE(flags.publish.auto_promote);
  EXPECT_FALSE(flags.publish.tune_wanted);
  EXPECT_FALSE(flags.publish.open_to_all);
  EXPECT_EQ(flags.publish.wanted_budget, absl::Seconds(10));
}

TEST_F(FlagsTest, FlagBeatsEnvironmentBeatsConfigBeatsDefault) {
  const std::string config = Config("state-dir = \"/config\"\nlog-level = \"error\"\n");
  EXPECT_EQ(Parse({"--config", config}).state_dir, "/config");
  const ScopedVariable variable("CONVTUNE_STATE_DIR", "/environment");
  EXPECT_EQ(Parse({}).state_dir, "/environment");
  EXPECT_EQ(Parse({"--config", config}).state_dir, "/environment");
  EXPECT_EQ(Parse({"--config", config}).log_level, "error");
  EXPECT_EQ(Parse({"--config", config, "--state-dir", "/flag"}).state_dir, "/flag");
}

TEST_F(FlagsTest, PrecedenceHoldsForListsAndSwitches) {
  const std::string config =
      Config("listen = [\"unix:/a\", \"unix:/b\"]\nallow-network-fs = true\n");
  EXPECT_THAT(Parse({"--config", config}).listen, ElementsAre("unix:/a", "unix:/b"));
  EXPECT_TRUE(Parse({"--config", config}).allow_network_fs);
  const ScopedVariable listen("CONVTUNE_LISTEN", "unix:/c,unix:/d");
  const ScopedVariable network("CONVTUNE_ALLOW_NETWORK_FS", "false");
  EXPECT_THAT(Parse({"--config", config}).listen, ElementsAre("unix:/c", "unix:/d"));
  EXPECT_FALSE(Parse({"--config", config}).allow_network_fs);
  EXPECT_THAT(Parse({"--listen", "unix:/e", "--listen", "unix:/f"}).listen,
              ElementsAre("unix:/e", "unix:/f"));
}

TEST_F(FlagsTest, EmptyVariableIsUnset) {
  const std::string config = Config("state-dir = \"/config\"\n");
  const ScopedVariable variable("CONVTUNE_STATE_DIR", "");
  EXPECT_EQ(Parse({"--config", config}).state_dir, "/config");
}

TEST_F(FlagsTest, ConfigFileComesFromTheEnvironmentToo) {
  const ScopedVariable variable("CONVTUNED_CONFIG", Config("state-dir = \"/config\"\n"));
  EXPECT_EQ(Parse({}).state_dir, "/config");
}

TEST_F(FlagsTest, MissingConfigFileIsAnError) {
  EXPECT_THAT(Error({"--config", dir_.path("none")}), HasSubstr(dir_.path("none")));
  const ScopedVariable variable("CONVTUNED_CONFIG", dir_.path("none"));
  EXPECT_THAT(Error({}), HasSubstr(dir_.path("none")));
}

TEST_F(FlagsTest, WhatTheFileHasTooMuchIsSaidWithTheFile) {
  const std::string config = Config("listn = \"unix:/a\"\n");
  EXPECT_THAT(Error({"--config", config}), HasSubstr(config + ": no such setting: listn"));
}

TEST_F(FlagsTest, TheCommandLinesFileIsNotTheDaemons) {
  const ScopedVariable variable("CONVTUNE_CONFIG", Config("address = \"unix:/a\"\n"));
  EXPECT_THAT(Parse({}).warnings, ElementsAre(HasSubstr("the daemon's is CONVTUNED_CONFIG")));
  EXPECT_THAT(Parse({"--config", Config("")}).warnings, testing::IsEmpty());
}

TEST_F(FlagsTest, AVariableThatNobodyReadsIsSaid) {
  const ScopedVariable variable("CONVTUNE_LISTN", "unix:/a");
  EXPECT_THAT(Parse({}).warnings, ElementsAre(HasSubstr("CONVTUNE_LISTN: ")));
}

TEST_F(FlagsTest, EachFlagsVariableIsKnown) {
  const std::string help = ParseFlags({"--help"}).text;
  const std::regex flag("--([a-z][a-z-]+)");
  int flags = 0;
  for (std::sregex_iterator it(help.begin(), help.end(), flag); it != std::sregex_iterator();
       ++it) {
    const std::string flag_name = (*it)[1];
    if (flag_name == "help" || flag_name == "version") continue;
    ++flags;
    const std::string name =
        "CONVTUNE_" + absl::AsciiStrToUpper(absl::StrReplaceAll(flag_name, {{"-", "_"}}));
    const ScopedVariable variable(name.c_str(), "x");
    EXPECT_THAT(UnknownVariables(), testing::IsEmpty());
  }
  EXPECT_GT(flags, 40);
}

TEST_F(FlagsTest, AFileHasNoSections) {
  for (const char* const text : {"[tls]\ncert = \"a\"\n", "tls.cert = \"a\"\n"}) {
    const std::string config = Config(text);
    EXPECT_THAT(Error({"--config", config}),
                HasSubstr(config + ": there are no sections, such as [tls]"));
  }
}

TEST_F(FlagsTest, ANumberMayHaveZerosInFront) {
  EXPECT_EQ(Parse({"--config", Config("backup-keep = 08\n")}).backup_keep, 8);
  EXPECT_EQ(Parse({"--backup-keep", "010"}).backup_keep, 10);
  EXPECT_EQ(Parse({"--max-db-size", "010KiB"}).max_db_bytes, 10 * 1024);
  EXPECT_EQ(Parse({"--max-db-size", "0"}).max_db_bytes, 0);
  EXPECT_THAT(Error({"--backup-keep", "00"}), HasSubstr("--backup-keep: Value 0 not in range 1"));
}

TEST_F(FlagsTest, AddressesAndCertificatesAreLookedAtBeforeAllElse) {
  EXPECT_THAT(Error({"--listen", "tcp:1.2.3.4"}), HasSubstr("tcp:1.2.3.4"));
  EXPECT_THAT(Error({"--listen", "127.0.0.1:7070"}), HasSubstr("tls-cert"));
  EXPECT_THAT(Error({"--tls-cert", "/nonexistent.pem"}), HasSubstr("HOST:PORT"));
}

TEST_F(FlagsTest, BackupsLieInTheStateDirectoryUnlessAFolderIsNamed) {
  EXPECT_EQ(Parse({"--state-dir", "/state/"}).backup_dir, "/state/backup");
  EXPECT_EQ(Parse({"--backup-dir", "/copies/"}).backup_dir, "/copies");
  EXPECT_EQ(Parse({}).backup_every, absl::ZeroDuration());
  EXPECT_EQ(Parse({"--backup-every", "6h"}).backup_every, absl::Hours(6));
  EXPECT_THAT(Error({"--backup-every", "0s"}), HasSubstr("--backup-every"));
  EXPECT_THAT(Error({"--backup-keep", "0"}), HasSubstr("--backup-keep"));
}

TEST_F(FlagsTest, MetricsAreOffUnlessAnAddressIsGiven) {
  EXPECT_EQ(Parse({}).metrics_address, "");
  EXPECT_EQ(Parse({"--metrics-address", "127.0.0.1:9464"}).metrics_address, "127.0.0.1:9464");
  const ScopedVariable variable("CONVTUNE_METRICS_ADDRESS", "[::1]:9464");
  EXPECT_EQ(Parse({}).metrics_address, "[::1]:9464");
  EXPECT_THAT(Error({"--metrics-address", "localhost:9464"}), HasSubstr("must be IP:PORT"));
}

TEST_F(FlagsTest, TheNodeIsTheHostUnlessItIsNamed) {
  EXPECT_EQ(Parse({}).node, "");
  const ScopedVariable variable("CONVTUNE_NODE", "gpu-node-7");
  EXPECT_EQ(Parse({}).node, "gpu-node-7");
  EXPECT_EQ(Parse({"--node", "rack 2"}).node, "rack 2");
  EXPECT_THAT(Error({"--node", "a\nb"}), HasSubstr("without control characters"));
  EXPECT_THAT(Error({"--node", std::string(257, 'n')}), HasSubstr("1 to 256 bytes"));
}

TEST_F(FlagsTest, BadValuesNameTheFlag) {
  EXPECT_THAT(Error({"--idle-timeout", "soon"}), HasSubstr("--idle-timeout"));
  EXPECT_THAT(Error({"--drain-timeout", "0s"}), HasSubstr("--drain-timeout"));
  EXPECT_THAT(Error({"--devices", "0,,1"}), HasSubstr("--devices"));
  EXPECT_THAT(Error({"--devices", "some"}), HasSubstr("--devices"));
  EXPECT_THAT(Error({"--log-format", "xml"}), HasSubstr("--log-format"));
  EXPECT_THAT(Error({"--max-db-size", "-1"}), HasSubstr("--max-db-size"));
  EXPECT_THAT(Error({"--wat"}), HasSubstr("--wat"));
  EXPECT_THAT(Error({"--once"}), HasSubstr("--file"));
  EXPECT_THAT(Error({"--file", "x"}), HasSubstr("--once"));
}

TEST_F(FlagsTest, SizesAndTimesHaveUnits) {
  const Flags flags = Parse({"--max-db-size", "2MiB", "--idle-timeout", "1m30s"});
  EXPECT_EQ(flags.max_db_bytes, 2 << 20);
  EXPECT_EQ(Parse({"--max-db-size", "2GB"}).max_db_bytes, 2'000'000'000);
  EXPECT_EQ(flags.limits.idle_timeout, absl::Seconds(90));
}

TEST_F(FlagsTest, OnceReadsItsOverrides) {
  const Flags flags =
      Parse({"--once",     "--file",      "a.csv",     "--file",        "b.csv", "--op",
             "bwd_filter", "--dtype",     "f16",       "--layout",      "nhwc",  "--batch",
             "32",         "--on",        "heuristic", "--time-budget", "2s",    "--memory-budget",
             "2GiB",       "--wait-idle", "5m"});
  EXPECT_TRUE(flags.once);
  EXPECT_THAT(flags.files, ElementsAre("a.csv", "b.csv"));
  EXPECT_EQ(flags.overrides.operation, Operation::kBwdFilter);
  EXPECT_EQ(flags.overrides.data_type, DataType::kF16);
  EXPECT_EQ(flags.overrides.layout, TensorLayout::kNhwc);
  EXPECT_EQ(flags.overrides.batches, std::vector<int64_t>{32});
  EXPECT_EQ(flags.on_miss, jobs::OnMiss::kHeuristic);
  EXPECT_EQ(flags.time_budget, absl::Seconds(2));
  EXPECT_EQ(flags.publish.wanted_memory_budget_bytes, int64_t{2} << 30);
  EXPECT_EQ(flags.publish.wanted_wait_idle, absl::Minutes(5));
}

TEST_F(FlagsTest, AWaitForAnIdleGpuIsAnHourAtMost) {
  for (const char* wait : {"2h", "-1s", "soon"}) {
    const ParsedFlags parsed = ParseFlags({"--once", "--file", "a.csv", "--wait-idle", wait});
    EXPECT_EQ(parsed.exit_code, 2) << wait;
    EXPECT_THAT(parsed.text, HasSubstr("at most 1h")) << wait;
  }
}

TEST_F(FlagsTest, HelpAndVersionSucceed) {
  for (const char* flag : {"--help", "--version"}) {
    const ParsedFlags parsed = ParseFlags({flag});
    EXPECT_FALSE(parsed.flags.has_value());
    EXPECT_EQ(parsed.exit_code, 0);
    EXPECT_THAT(parsed.text,
                HasSubstr(flag == std::string("--help") ? "--state-dir" : CONVTUNE_VERSION));
  }
}

TEST_F(FlagsTest, HelpHasWhatIsSetOftenFirst) {
  const std::string help = ParseFlags({"--help"}).text;
  const size_t seldom = help.find("Most people leave this alone:");
  ASSERT_NE(seldom, std::string::npos);
  for (const char* flag : {"--listen ", "--devices ", "--publish-evidence ", "--log-level "}) {
    EXPECT_LT(help.find(flag), seldom) << flag;
  }
  for (const char* flag : {"--hang-timeout ", "--worker ", "--wanted-budget "}) {
    EXPECT_GT(help.find(flag), seldom) << flag;
    EXPECT_LT(help.find(flag), help.find("With --once:")) << flag;
  }
}

TEST_F(FlagsTest, PublishingIsReadFromEveryPlace) {
  const ScopedVariable variable("CONVTUNE_AUTO_PROMOTE", "true");
  const Flags flags = Parse({"--publish-evidence", "heuristic", "--config",
                             Config("tune-wanted = true\nwanted-budget = \"3s\"\n")});
  EXPECT_EQ(flags.publish.floor, Evidence::kHeuristic);
  EXPECT_TRUE(flags.publish.auto_promote);
  EXPECT_TRUE(flags.publish.tune_wanted);
  EXPECT_EQ(flags.publish.wanted_budget, absl::Seconds(3));
  EXPECT_EQ(flags.publish.wanted_memory_budget_bytes, 0);
  EXPECT_THAT(Error({"--publish-evidence", "some"}), HasSubstr("--publish-evidence"));
}

TEST_F(FlagsTest, WhatIsWantedIsTunedWithinTheLimitsOfWhatTheDaemonTunesByItself) {
  const Flags flags = Parse({"--tune-wanted", "--memory-budget", "1GiB", "--wait-idle", "2m"});
  EXPECT_EQ(flags.publish.wanted_memory_budget_bytes, int64_t{1} << 30);
  EXPECT_EQ(flags.publish.wanted_wait_idle, absl::Minutes(2));
}

}  // namespace
}  // namespace convtune::convtuned
