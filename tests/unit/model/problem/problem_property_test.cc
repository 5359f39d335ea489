#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "proto/base/strings.h"
#include "proto/model/environment.h"
#include "tests/unit/model/problem/random_problem.h"

namespace convtune {
namespace {

constexpr int kProblems = 20000;
constexpr uint64_t kSeed = 20260117;

std::string Joined(const std::vector<std::string_view>& tokens) {
  std::string text;
  for (const std::string_view token : tokens) AppendTo(&text, text.empty() ? "" : ",", token);
  return text;
}

// Many random problems, always the same ones; empty if a spec was refused.
const std::vector<ConvProblem>& RandomProblems() {
  static const auto* const kRandomProblems = [] {
    auto* problems = new std::vector<ConvProblem>;
    std::mt19937_64 random(kSeed);
    for (int i = 0; i < kProblems; ++i) {
      std::vector<Violation> violations;
      std::optional<ConvProblem> problem =
          ConvProblem::Create(RandomValidSpec(random), &violations);
      if (!problem) {
        ADD_FAILURE() << "number " << i << ": " << ToString(violations);
        problems->clear();
        break;
      }
      problems->push_back(*std::move(problem));
    }
    return problems;
  }();
  return *kRandomProblems;
}

template <typename Check>
void ForRandomProblems(const Check& check) {
  ASSERT_EQ(RandomProblems().size(), static_cast<size_t>(kProblems));
  for (const ConvProblem& problem : RandomProblems()) {
    check(problem);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(ProblemPropertyTest, ParsingWhatWasPrintedGivesTheSameProblem) {
  ForRandomProblems([](const ConvProblem& problem) {
    const std::string text = problem.ToText();
    const absl::StatusOr<ConvProblem> parsed = ConvProblem::Parse(text);
    ASSERT_TRUE(parsed.ok()) << text << ": " << parsed.status();
    ASSERT_EQ(*parsed, problem) << text;
    ASSERT_EQ(parsed->ToText(), text);
  });
}

TEST(ProblemPropertyTest, TheOrderOfTokensDoesNotMatter) {
  std::mt19937_64 random(kSeed + 1);
  ForRandomProblems([&random](const ConvProblem& problem) {
    const std::string text = problem.ToText();
    std::vector<std::string_view> tokens = Split(text, ',');
    std::shuffle(tokens.begin() + 1, tokens.end(), random);
    const absl::StatusOr<ConvProblem> parsed = ConvProblem::Parse(Joined(tokens));
    ASSERT_TRUE(parsed.ok()) << Joined(tokens) << ": " << parsed.status();
    ASSERT_EQ(*parsed, problem);
    ASSERT_EQ(parsed->ToText(), text);
  });
}

TEST(ProblemPropertyTest, DifferentProblemsHaveDifferentTextsAndDigests) {
  std::map<std::string, ConvProblem> by_text;
  std::map<TuningDigest, std::string> by_digest;
  ForRandomProblems([&](const ConvProblem& problem) {
    const std::string text = problem.ToText();
    const auto [same_text, new_text] = by_text.emplace(text, problem);
    ASSERT_EQ(same_text->second, problem);
    const auto [same_digest, new_digest] =
        by_digest.emplace(TuningKey{text, "nvidia-h200"}.Digest(), text);
    ASSERT_EQ(same_digest->second, text);
    ASSERT_EQ(new_text, new_digest);
  });
}

// What a stranger may send: any change of a valid text is either refused with
// a reason or gives a problem whose text is stable.
TEST(ProblemPropertyTest, MutatedTextsAreRefusedWithAReasonOrStable) {
  std::mt19937_64 random(kSeed + 2);
  constexpr std::string_view kBytes = "0123456789x:,=-+fwdbiasnhwc \t\x01\xC3\xFF\"{";
  int refused = 0;
  for (int i = 0; i < 10000; ++i) {
    std::string text = ConvProblem::Create(RandomValidSpec(random))->ToText();
    const int changes = 1 + static_cast<int>(random() % 4);
    for (int k = 0; k < changes && !text.empty(); ++k) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = kBytes[random() % kBytes.size()];
          break;
        case 1:
          text.insert(at, 1, kBytes[random() % kBytes.size()]);
          break;
        case 2:
          text.erase(at, 1 + random() % 5);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 30));
      }
    }
    std::vector<Violation> violations;
    const std::optional<ConvProblem> problem = ConvProblem::Parse(text, &violations);
    ASSERT_EQ(problem.has_value(), violations.empty()) << text;
    if (problem) {
      ASSERT_EQ(*ConvProblem::Parse(problem->ToText()), *problem) << text;
    } else {
      ++refused;
      for (const Violation& violation : violations) {
        ASSERT_FALSE(violation.field.empty()) << text;
        ASSERT_FALSE(violation.rule.empty()) << text;
      }
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 10000);
}

}  // namespace
}  // namespace convtune
