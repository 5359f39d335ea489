// The verb ban, and errata.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "absl/time/clock.h"
#include "client/cli/commands/ban/bans.h"
#include "tests/unit/cli/fake_daemon.h"

namespace convtune::cli::commands {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

absl::StatusOr<ban::ErrataBans> ReadErrata(const std::string& text) {
  std::istringstream in(text);
  return ban::ReadErrata(in, "file");
}

class BanTest : public DaemonTest {
 protected:
  std::string WriteFile(const std::string& text) const {
    const std::string path = daemon_.folder() + "/errata.json";
    std::ofstream(path) << text;
    return path;
  }
  v1::Ban& AddBan(const std::string& candidate) {
    v1::Ban& ban = *daemon_.bans.add_bans();
    ban.set_name("bans/" + std::to_string(daemon_.bans.bans_size()));
    ban.set_candidate(candidate);
    ban.set_author("ada");
    ban.set_reason("wrong results");
    return ban;
  }
};

TEST_F(BanTest, SendsEachConditionAndSaysWhatChanges) {
  daemon_.banned.set_change_count(3);
  daemon_.banned.set_lost_count(1);
  daemon_.banned.set_listed_count(12);
  v1::BanChange& change = *daemon_.banned.add_changes();
  change.set_problem_text(ProblemText(8));
  change.set_environment("nvidia-h200");
  change.set_before("graph:eng47,k2=1");
  change.set_after("graph:eng1");
  change.set_ratio(1.25);
  change.set_pinned(true);
  daemon_.banned.add_changes()->set_before("graph:eng47");
  const RunResult result =
      Run({"ban", "eng47", "--cudnn", "<9.20", "--gpu", "*h200", "--op", "bwd_data", "--dtype",
           "half", "--layout", "nhwc", "--reason", "wrong", "--author", "ada", "--expires", "2h"});
  EXPECT_EQ(result.code, 0) << result.err;
  ASSERT_EQ(daemon_.bans_asked.size(), 1U);
  EXPECT_FALSE(daemon_.bans_asked[0].dry_run());
  const v1::Ban& ban = daemon_.bans_asked[0].ban();
  EXPECT_EQ(ban.candidate(), "eng47");
  EXPECT_EQ(ban.cudnn(), "<9.20");
  EXPECT_EQ(ban.gpu(), "*h200");
  EXPECT_EQ(ban.operation(), v1::OPERATION_BWD_DATA);
  EXPECT_EQ(ban.data_type(), v1::DATA_TYPE_F16);
  EXPECT_EQ(ban.layout(), v1::TENSOR_LAYOUT_NHWC);
  EXPECT_EQ(ban.author(), "ada");
  EXPECT_NEAR(static_cast<double>(ban.expire_time().seconds()),
              static_cast<double>(absl::ToUnixSeconds(absl::Now()) + 7200), 60);
  EXPECT_THAT(result.out, HasSubstr("graph:eng47,k2=1 (pinned)"));
  EXPECT_THAT(result.out, AllOf(HasSubstr("1.25x"), HasSubstr("none is left")));
  EXPECT_THAT(result.err,
              HasSubstr("bans/1 bans eng47 (cudnn <9.20, gpu *h200, bwd_data f16 nhwc) until "));
  EXPECT_THAT(
      result.err,
      HasSubstr("12 tunings list such a candidate, 3 have another winner, 1 of these no candidate "
                "that is left\n"));
  EXPECT_THAT(result.err, HasSubstr(absl::StrCat("1 pin has no effect while the ban holds: ",
                                                 ProblemText(8), " in nvidia-h200\n")));
  EXPECT_THAT(result.err, HasSubstr("these are the first 2 changes\n"));
}

TEST_F(BanTest, ADryRunSaysSo) {
  const RunResult result = Run({"ban", "legacy:*", "--reason", "wrong", "--dry-run", "--json"});
  EXPECT_EQ(result.code, 0);
  EXPECT_TRUE(daemon_.bans_asked.at(0).dry_run());
  EXPECT_THAT(result.err,
              HasSubstr("would ban legacy:* (everywhere) until deleted: 0 tunings list"));
  EXPECT_THAT(result.out, HasSubstr(R"({"created":[{"ban":{"candidate":"legacy:*")"));
}

TEST_F(BanTest, ExpiresOnADate) {
  EXPECT_EQ(Run({"ban", "eng1", "--reason", "x", "--expires", "2100-01-31"}).code, 0);
  EXPECT_EQ(daemon_.bans_asked.at(0).ban().expire_time().seconds(), 4105036800);
}

TEST_F(BanTest, WhatIsNoErrataIsAUsageError) {
  EXPECT_EQ(Run({"ban", "--errata", WriteFile("{}"), "--cudnn", "9.19"}).code, 2);
  EXPECT_EQ(Run({"ban", "--errata", WriteFile("[]")}).code, 2);
  EXPECT_TRUE(daemon_.bans_asked.empty());
}

TEST_F(BanTest, ListsAndDeletes) {
  AddBan("graph:eng47").set_tuning_count(4);
  v1::Ban& second = AddBan("legacy:*");
  second.set_gpu("*a100");
  second.mutable_expire_time()->set_seconds(4105036800);
  const RunResult table = Run({"ban", "list"});
  EXPECT_THAT(table.out, AllOf(HasSubstr("bans/1"), HasSubstr("gpu *a100")));
  EXPECT_THAT(table.out, HasSubstr("2100-01-31"));
  const RunResult csv = Run({"ban", "list", "--csv"});
  EXPECT_THAT(csv.out, HasSubstr("\nbans/1,graph:eng47,,,,,,ada,wrong results,"));
  EXPECT_THAT(Run({"ban", "list", "--json"}).out, HasSubstr(R"("tuningCount":"4")"));
  EXPECT_EQ(Run({"ban", "delete", "2"}).code, 0);
  EXPECT_EQ(daemon_.deleted_ban, "bans/2");
  EXPECT_EQ(Run({"ban", "delete", "bans/1"}).code, 0);
  EXPECT_EQ(daemon_.deleted_ban, "bans/1");
  EXPECT_EQ(daemon_.deleted_fleet_ban, 0);
}

TEST_F(BanTest, OneThatCameWithConvtuneIsShownWithItsConditions) {
  v1::Ban& shipped = AddBan("graph:eng23");
  shipped.set_name("shipped/5");
  shipped.set_shipped(true);
  shipped.set_operation(v1::OPERATION_FWD);
  shipped.set_spatial_rank(3);
  const RunResult table = Run({"ban", "list"});
  EXPECT_THAT(table.out, AllOf(HasSubstr("shipped/5"), HasSubstr("fwd 3-D")));
  EXPECT_THAT(table.out, HasSubstr("--no-errata"));
  EXPECT_THAT(Run({"ban", "list", "--csv"}).out, HasSubstr(",0,0,3,true\n"));
}

TEST_F(BanTest, AFleetsBanIsShownWithBothNumbersAndDeletedByThem) {
  AddBan("graph:eng47").set_fleet_ban(7);
  const RunResult table = Run({"ban", "list"});
  EXPECT_THAT(table.out, HasSubstr("bans/1, fleet ban 7"));
  const RunResult csv = Run({"ban", "list", "--csv"});
  EXPECT_THAT(csv.out, AllOf(HasSubstr(",tunings,fleet_ban,"), HasSubstr(",,0,7,0,false\n")));
  EXPECT_EQ(Run({"ban", "delete", "1", "--fleet-ban", "7"}).code, 0);
  EXPECT_EQ(daemon_.deleted_fleet_ban, 7);
}

TEST_F(BanTest, ErrataBecomeBansAndWhatABanCannotSayIsSaid) {
  const std::string path = WriteFile(R"({"version": 1, "rules": [
    {"rule_id": "avoid_bad_bwd_data", "operation": "ConvBwdData", "engine": 12,
     "knob": ["k2=3"], "cudnn_version_start": 8907, "cudnn_version_end": 91900},
    {"rule_id": "shapes", "operation": "ConvFwd", "engine": 3, "input_shape": [1, 2, 3, 4],
     "shape_format": "NCHW"}]})");
  const RunResult result = Run({"ban", "--errata", path, "--gpu", "*h200"});
  EXPECT_EQ(result.code, 1);
  ASSERT_EQ(daemon_.bans_asked.size(), 1U);
  const v1::Ban& ban = daemon_.bans_asked[0].ban();
  EXPECT_EQ(ban.candidate(), "graph:eng12,k2=3");
  EXPECT_EQ(ban.cudnn(), ">=8.9.7,<9.19.0");
  EXPECT_EQ(ban.operation(), v1::OPERATION_BWD_DATA);
  EXPECT_EQ(ban.gpu(), "*h200");
  EXPECT_EQ(ban.reason(), "errata: avoid_bad_bwd_data");
  EXPECT_THAT(
      result.err,
      HasSubstr("error: rule 2 (shapes) is not taken: a ban has no condition for input_shape, "
                "shape_format\n"));
}

TEST_F(BanTest, ASecondTimeTheSameErrataChangeNothing) {
  daemon_.error = grpc::Status(grpc::StatusCode::ALREADY_EXISTS, "ban: bans/1 has the same rule");
  const std::string path =
      WriteFile(R"({"rules": [{"rule_id": "a", "operation": "ConvBwdData", "engine": 1}]})");
  const RunResult result = Run({"ban", "--errata", path});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err, "ban: bans/1 has the same rule\n");
  EXPECT_EQ(Run({"ban", "eng1", "--reason", "x"}).code, 1);
}

TEST_F(BanTest, TheListIsWrittenAsErrata) {
  v1::Ban& first = AddBan("graph:eng12,k2=3");
  first.set_operation(v1::OPERATION_BWD_FILTER);
  first.set_cudnn(">=8.9.7,<9.19.0");
  AddBan("graph:eng7").mutable_expire_time()->set_seconds(4105036800);
  AddBan("graph:eng7").set_gpu("*h200");
  AddBan("graph:eng7,k2=*");
  AddBan("legacy:*");
  const RunResult result = Run({"ban", "list", "--errata"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr(R"("rule_id": "bans/1: wrong results")"));
  for (const char* said : {"bans/2: its rule does not end at 2100-01-31",
                           "bans/2: its rule does not hold for graphs with an epilogue",
                           "bans/3 is left out: rules have no condition for GPU",
                           "bans/4 is left out: rules name knobs with their setting",
                           "bans/5 is left out: rules name no legacy algorithms"}) {
    EXPECT_THAT(result.err, HasSubstr(said)) << said << " is not in:\n" << result.err;
  }
  // One rule of the first, three of the second; they are read back as what they were.
  const auto again = ReadErrata(result.out);
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_EQ(again->bans.size(), 4U);
  EXPECT_TRUE(again->refused.empty());
  EXPECT_EQ(again->bans[0].candidate(), first.candidate());
  EXPECT_EQ(again->bans[0].cudnn(), first.cudnn());
  EXPECT_EQ(again->bans[0].operation(), first.operation());
  EXPECT_EQ(again->bans[3].operation(), v1::OPERATION_BWD_FILTER);
  EXPECT_EQ(again->bans[3].cudnn(), "");
}

TEST(ErrataTest, MalformedRulesAreRefusedOneByOne) {
  for (const char* rule :
       {R"("x")", R"({})", R"({"operation": "ConvFwd"})",
        R"({"operation": "ConvFwd", "engine": "1"})",
        R"({"operation": "ConvFwd_Add", "engine": 1})", R"({"operation": 1, "engine": 1})",
        R"({"operation": "ConvFwd", "engine": -1})",
        R"({"operation": "ConvFwd", "engine": 1, "knob": "k2=3"})",
        R"({"operation": "ConvFwd", "engine": 1, "knob": ["x"]})",
        R"({"operation": "ConvFwd", "engine": 1, "knob": [2]})",
        R"({"operation": "ConvFwd", "engine": 1, "cudnn_version_start": "9"})",
        R"({"operation": "ConvFwd", "engine": 1, "cudnn_version_start": 99999999999})",
        R"({"operation": "ConvFwd", "engine": 1, "cudnn_version_start": 92000,
            "cudnn_version_end": 91900})",
        R"({"operation": "ConvFwd", "engine": 1, "arch": "sm_90"})"}) {
    const std::string good = R"({"operation": "ConvFwd", "engine": 1, "cudnn_version_end": -1})";
    const auto errata = ReadErrata("{\"rules\": [" + std::string(rule) + ", " + good + "]}");
    ASSERT_TRUE(errata.ok()) << rule;
    EXPECT_EQ(errata->refused.size(), 1U) << rule;
    ASSERT_EQ(errata->bans.size(), 1U) << rule;
    EXPECT_EQ(errata->bans[0].reason(), "errata: rule 2");
  }
  const auto below_all =
      ReadErrata(R"({"rules": [{"operation": "ConvFwd", "engine": 1, "cudnn_version_end": 0}]})");
  ASSERT_TRUE(below_all.ok());
  EXPECT_EQ(below_all->refused,
            std::vector<std::string>{"rule 1 is not taken: no version is from 0 to below 0"});
  for (const char* text :
       {"", "{", "[]", "{}", R"({"rules": {}})", R"({"version": 2, "rules": []})"}) {
    EXPECT_FALSE(ReadErrata(text).ok()) << text;
  }
}

TEST_F(BanTest, GetSaysWhichBanChangesItsAnswers) {
  daemon_.answers_banned.set_ban("bans/3");
  daemon_.answers_banned.set_reason("wrong results");
  daemon_.answers_banned.set_candidate("graph:eng47");
  const RunResult result = Run({"get", ProblemText(8), ProblemText(16)});
  EXPECT_THAT(result.out, HasSubstr("measured, bans/3"));
  EXPECT_THAT(result.err, HasSubstr("2 answers are another for bans/3 (wrong results)\n"));
}

TEST_F(BanTest, ExplainMarksWhatIsBanned) {
  v1::Candidate& candidate = *daemon_.tuning.add_candidates();
  candidate.set_text("graph:eng47,k2=9");
  candidate.set_status(v1::CANDIDATE_STATUS_TIMED);
  v1::BannedCandidate& banned = *daemon_.tuning.add_banned();
  banned.set_candidate(candidate.text());
  banned.set_ban("bans/3");
  banned.set_reason("wrong results");
  const std::string text = Run({"explain", ProblemText(8)}).out;
  EXPECT_THAT(text, HasSubstr("banned: 1 candidate by bans/3 (wrong results)\n"));
  EXPECT_THAT(text, HasSubstr("banned-by-bans/3"));
}

TEST_F(BanTest, DoctorSaysWhatBansChange) {
  EXPECT_THAT(Run({"doctor"}).out, Not(HasSubstr("ban")));
  AddBan("graph:eng47");
  EXPECT_THAT(Run({"doctor"}).out, HasSubstr("1 ban holds; no tuning has another winner for it"));
  AddBan("legacy:*").set_tuning_count(4);
  EXPECT_THAT(Run({"doctor"}).out,
              HasSubstr("2 bans hold; 4 tunings have another winner for bans/2 (wrong results)"));
}

}  // namespace
}  // namespace convtune::cli::commands
