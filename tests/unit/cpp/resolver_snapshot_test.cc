// What the library answers from a snapshot where no daemon is.
#include <convtune/resolver.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/unit/cpp/published.h"
#include "tests/unit/temp_dir.h"

namespace convtune::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr char kOther[] = "fwd,x=1x64x56x56,w=64x64x3x3,pad=1,nhwc,f16";

class ResolverSnapshotTest : public ::testing::Test {
 protected:
  void Publish(const std::vector<std::string>& models, const snapshot::SnapshotChoice& choice) {
    client::Publish(folder_.path(), models, choice);
  }
  Options NobodyThere() const {
    Options options;
    options.address = "unix:/nonexistent/convtune.sock";
    options.snapshot = folder_.path();
    return options;
  }
  // What is not found takes the whole limit. Where that did not suffice to read the file, the
  // machine was busy: asks again with more.
  static std::vector<Result> AskAll(Resolver* resolver, const std::vector<Query>& queries,
                                    const Constraints& constraints = {}) {
    for (milliseconds limit(40);; limit *= 2) {
      const std::vector<Result> results = resolver->Resolve(queries, limit, constraints);
      EXPECT_EQ(results.size(), queries.size());
      if (results.size() != queries.size()) return std::vector<Result>(queries.size());
      if (std::none_of(results.begin(), results.end(), [](const Result& result) {
            return result.message.find("could not be read within the limit") != std::string::npos;
          })) {
        return results;
      }
    }
  }
  static Result Ask(const Options& options, const Constraints& constraints = {},
                    const std::string& problem = kPublished) {
    Resolver resolver(options);
    return AskAll(&resolver, {{problem}}, constraints)[0];
  }

  TempDir folder_;
};

TEST_F(ResolverSnapshotTest, AnswersWithTheFasterApisFirstChoice) {
  Publish({"a"}, ThreeChoices());
  const Result result = Ask(NobodyThere());
  ASSERT_TRUE(result.found) << result.message;
  EXPECT_EQ(result.source, Source::kSnapshot);
  EXPECT_EQ(result.evidence, Evidence::kMeasured);
  EXPECT_EQ(result.problem, ConvProblem::Parse(kPublished)->ToText());
  EXPECT_EQ(result.winner.text, "legacy:algo1,math1");
  EXPECT_FALSE(result.winner.graph);
  EXPECT_EQ(result.winner.algorithm, 1);
  EXPECT_EQ(result.winner.workspace_bytes, 64);
  ASSERT_EQ(result.portfolio.size(), 3U);
  EXPECT_EQ(result.portfolio[1].text, "graph:eng5,k2=1");
  EXPECT_EQ(result.portfolio[1].knobs, (std::vector<std::pair<int, std::int64_t>>{{2, 1}}));
}

TEST_F(ResolverSnapshotTest, TheFirstChoiceOfUntimedOnesStaysFirst) {
  snapshot::SnapshotChoice choice = ThreeChoices();
  for (convtune::Candidate& candidate : choice.candidates) candidate.median_us = 0;
  Publish({"a"}, choice);
  EXPECT_EQ(Ask(NobodyThere()).winner.text, "graph:eng5,k2=1");
}

TEST_F(ResolverSnapshotTest, WhatItDoesNotHaveSaysWhy) {
  Publish({"a"}, ThreeChoices());
  Result result = Ask(NobodyThere(), {}, kOther);
  EXPECT_EQ(result.source, Source::kNone);
  EXPECT_THAT(result.message, HasSubstr("not in the snapshot for a"));
  EXPECT_EQ(result.miss, MissReason::kUnavailable);
  result = Ask(NobodyThere(), {}, "fwd,x=0x1");
  EXPECT_THAT(result.message, HasSubstr("x_dims"));
  EXPECT_EQ(result.miss, MissReason::kRefused);
}

TEST_F(ResolverSnapshotTest, SeveralEnvironmentsNeedAName) {
  Publish({"a", "b"}, ThreeChoices());
  EXPECT_THAT(Ask(NobodyThere()).message,
              HasSubstr("must be one of: a,cc=9.0,sms=132,cudnn=9.19.0,lib=full; b,cc="));
  Options named = NobodyThere();
  named.environment = "b";
  EXPECT_TRUE(Ask(named).found);
  named.environment = "c";
  EXPECT_THAT(Ask(named).message, HasSubstr("is 'c'"));
}

TEST_F(ResolverSnapshotTest, AnswersAreThoseOfTheProgramsEnvironmentAlone) {
  Publish({"a"}, ThreeChoices());
  Options options = NobodyThere();
  options.program.cudnn_version = "9.19.0";
  const Result own = Ask(options);
  ASSERT_TRUE(own.found) << own.message;
  EXPECT_EQ(own.environment.text, "a,cc=9.0,sms=132,cudnn=9.19.0,lib=full");
  EXPECT_EQ(own.environment.name, "a");
  EXPECT_EQ(own.environment.cudnn_version, "9.19.0");
  EXPECT_EQ(own.environment.library_configuration, "full");
  options.program.cudnn_version = "9.12.0";
  const Result other = Ask(options);
  EXPECT_FALSE(other.found);
  EXPECT_EQ(other.miss, MissReason::kOtherEnvironment);
  EXPECT_THAT(other.message, HasSubstr("other environment: the program has cudnn=9.12.0; "));
  options.program = {};
  options.program.gpu_model = "B";
  EXPECT_EQ(Ask(options).miss, MissReason::kOtherEnvironment);
}

TEST_F(ResolverSnapshotTest, TheProgramTellsWhichOfSeveralEnvironmentsIsMeant) {
  Publish({"a", "a 9.12.0", "b"}, ThreeChoices());
  Options options = NobodyThere();
  options.program.cudnn_version = "9.12.0";
  EXPECT_EQ(Ask(options).environment.cudnn_version, "9.12.0");
  options.program = {};
  options.environment = "a";
  EXPECT_THAT(Ask(options).message, HasSubstr("must be one of: "));
  options.program.cudnn_version = "9.19.0";
  EXPECT_EQ(Ask(options).environment.text, EnvironmentOf("a").ToText());
  options.environment = EnvironmentOf("a 9.12.0").ToText();
  EXPECT_EQ(Ask(options).miss, MissReason::kOtherEnvironment);
}

TEST_F(ResolverSnapshotTest, ATimeThatWasNotTakenIsNone) {
  snapshot::SnapshotChoice choice = ThreeChoices();
  choice.candidates[0].median_us = 0;
  Publish({"a"}, choice);
  const Result result = Ask(NobodyThere());
  ASSERT_EQ(result.portfolio.size(), 3U);
  EXPECT_FALSE(result.portfolio[0].median_us.has_value());
  EXPECT_EQ(result.portfolio[1].median_us, 12);
}

TEST_F(ResolverSnapshotTest, WhatNobodyKnowsIsCanonicalToo) {
  const Result result = Ask(NobodyThere());
  EXPECT_FALSE(result.found);
  EXPECT_EQ(result.miss, MissReason::kUnavailable);
  EXPECT_EQ(result.problem, ConvProblem::Parse(kPublished)->ToText());
  EXPECT_EQ(Ask(NobodyThere(), {}, "nonsense").problem, "nonsense");
}

TEST_F(ResolverSnapshotTest, WhatItCannotSatisfySaysWhy) {
  Publish({"a"}, ThreeChoices());
  Constraints young;
  young.max_age = std::chrono::hours(1);
  EXPECT_THAT(Ask(NobodyThere(), young).message, HasSubstr("does not say how old"));
  Constraints capture;
  capture.launch = LaunchMode::kGraphCapture;
  EXPECT_THAT(Ask(NobodyThere(), capture).message, HasSubstr("keeps to the constraints"));
}

TEST_F(ResolverSnapshotTest, ADamagedFileIsNoAnswer) {
  Publish({"a"}, ThreeChoices());
  std::fstream file(folder_.path("current.snapshot"),
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(200);
  file.put('x');
  file.close();
  EXPECT_THAT(Ask(NobodyThere()).message, HasSubstr("checksum"));
}

TEST_F(ResolverSnapshotTest, AReplacedFileIsReadAnew) {
  Publish({"a"}, ThreeChoices());
  Resolver resolver(NobodyThere());
  EXPECT_TRUE(AskAll(&resolver, {{kPublished}})[0].found);
  snapshot::SnapshotChoice choice = ThreeChoices();
  choice.candidates = {CandidateOf("graph:eng9", 1, 0)};
  Publish({"a"}, choice);
  EXPECT_EQ(AskAll(&resolver, {{kPublished}})[0].winner.text, "graph:eng9");
  std::filesystem::remove(folder_.path("current.snapshot"));
  EXPECT_FALSE(AskAll(&resolver, {{kPublished}})[0].found);
}

TEST_F(ResolverSnapshotTest, CanBeLeftOut) {
  Publish({"a"}, ThreeChoices());
  Options options = NobodyThere();
  options.use_snapshot = false;
  EXPECT_FALSE(Ask(options).found);
}

TEST_F(ResolverSnapshotTest, WhatIsFoundDoesNotWaitForTheRest) {
  Publish({"a"}, ThreeChoices());
  Resolver resolver(NobodyThere());
  // Longer than a test may take: it is back because all is there.
  EXPECT_TRUE(resolver.Resolve({{kPublished}}, seconds(1000))[0].found);
  const auto results = AskAll(&resolver, {{kOther}, {kPublished}});
  EXPECT_FALSE(results[0].found);
  EXPECT_TRUE(results[1].found);
}

}  // namespace
}  // namespace convtune::client
