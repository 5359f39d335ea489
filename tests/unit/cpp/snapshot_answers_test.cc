#include "client/cpp/snapshot_answers.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "convtune/v1/tuning_service.pb.h"
#include "tests/unit/cpp/published.h"
#include "tests/unit/rule_cases.h"
#include "tests/unit/temp_dir.h"

namespace convtune::client {
namespace {

Evidence EvidenceOf(const std::string& name) {
  return static_cast<Evidence>(ParseEvidence(name).value());
}

// Of the table's column.
Constraints Asked(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '=');
  const std::string& name = parts[0];
  const std::string value = parts.size() > 1 ? parts[1] : "";
  const auto number = [&] {
    int64_t parsed = 0;
    EXPECT_TRUE(absl::SimpleAtoi(value, &parsed)) << text;
    return parsed;
  };
  Constraints asked;
  if (name == "api") {
    asked.api = value == "graph" ? Api::kGraph : Api::kLegacy;
  } else if (name == "deterministic") {
    asked.deterministic = true;
  } else if (name == "launch") {
    asked.launch = LaunchMode::kGraphCapture;
  } else if (name == "cache_state") {
    asked.cache_state = CacheState::kCold;
  } else if (name == "min_evidence") {
    asked.min_evidence = EvidenceOf(value);
  } else if (name == "max_workspace_bytes") {
    asked.max_workspace_bytes = number();
  } else if (name == "max_error") {
    asked.max_error = static_cast<double>(number());
  } else if (name == "max_age") {
    asked.max_age = std::chrono::seconds(number());
  } else {
    EXPECT_EQ(text, "-");
  }
  return asked;
}

std::string Outcome(const v1::BatchGetResult& result) {
  if (result.has_answer()) return result.answer().winner().text();
  const std::string& name = v1::MissReason_Name(result.miss().reason());
  return absl::AsciiStrToLower(absl::StripPrefix(name, "MISS_REASON_"));
}

TEST(SnapshotAnswers, AnswersWhatTheTableSays) {
  const TempDir folder;
  for (const std::vector<std::string>& row : RuleCases("snapshot_answers.txt")) {
    ASSERT_EQ(row.size(), 4U);
    snapshot::SnapshotChoice choice = ThreeChoices();
    choice.evidence = ParseEvidence(row[0]).value();
    choice.pinned = row[1] == "yes";
    Publish(folder.path(), {"a"}, choice);
    const auto answers = SnapshotAnswers::Open(folder.path());
    ASSERT_TRUE(answers.ok()) << answers.status();
    const auto part = (*answers)->Choose("", {});
    ASSERT_TRUE(part.ok()) << part.status();
    const absl::StatusOr<Terms> terms = MakeTerms("", {}, Asked(row[2]));
    ASSERT_TRUE(terms.ok()) << terms.status();
    EXPECT_EQ(Outcome((*answers)->Find(**part, ConvProblem::Parse(kPublished).value(), *terms)),
              row[3])
        << row[0] << " " << row[1] << " " << row[2];
  }
}

TEST(SnapshotAnswers, AFileWithoutAnEnvironmentSaysWhy) {
  const TempDir folder;
  ASSERT_TRUE(snapshot::SnapshotWriter({}).Write(folder.path("current.snapshot")).ok());
  const auto answers = SnapshotAnswers::Open(folder.path());
  ASSERT_TRUE(answers.ok()) << answers.status();
  EXPECT_EQ((*answers)->Choose("", {}).status().message(),
            folder.path() +
                "/current.snapshot: has no environment: convtuned has no device and nothing "
                "that it publishes; `convtune doctor` says why");
}

}  // namespace
}  // namespace convtune::client
