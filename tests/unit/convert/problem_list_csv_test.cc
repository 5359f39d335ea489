#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "proto/convert/problem_list.h"

namespace convtune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ProblemList Read(const std::string& text, const ProblemOverrides& overrides = {}) {
  std::istringstream in(text);
  return ReadProblemList(in, "list.csv", overrides);
}

ConvProblem Parsed(std::string_view text) { return *ConvProblem::Parse(text); }

// The only error; fails if there is not just one.
std::string OnlyError(const ProblemList& list) {
  EXPECT_TRUE(list.rows.empty());
  if (list.errors.size() != 1) {
    ADD_FAILURE() << list.errors.size() << " errors";
    return "";
  }
  return list.errors[0].source + ": " + list.errors[0].message;
}

// Some text form with commas, in quotes.
constexpr char kQuoted[] = "\"fwd,x=1x64x7x7,w=64x64x3x3,pad=1,f16\"";

TEST(ProblemListCsvTest, AColumnOfProblemsIsAListOfThem) {
  const std::string text = kQuoted;
  const ProblemList list = Read("problem,environment,misses,last_error\n" + text +
                                ",nvidia-h200,7,\"a, b\"\n" + text + ",nvidia-h200,,\n");
  ASSERT_TRUE(list.errors.empty()) << list.errors[0].message;
  ASSERT_EQ(list.rows.size(), 2U);
  EXPECT_EQ(list.rows[0].problem, Parsed("fwd,x=1x64x7x7,w=64x64x3x3,pad=1,f16"));
  EXPECT_EQ(list.rows[0].count, 7);
  EXPECT_EQ(list.rows[0].source, "list.csv:2");
  EXPECT_EQ(list.rows[1].count, 1);
  EXPECT_THAT(list.notices, ElementsAre("ignored columns: environment, last_error"));
  // What `convtune wanted --csv` prints: its reader has chosen none of the columns.
  EXPECT_THAT(
      Read("problem,environment,misses,environment_text\n" + text + ",nvidia-h200,7,\n").notices,
      IsEmpty());
}

TEST(ProblemListCsvTest, OverridesReplaceWhatRowsSay) {
  const ProblemList list =
      Read("problem\n\"fwd,x=32x4x9x9,w=8x4x3x3,f16\"\n",
           {Operation::kBwdData, DataType::kBF16, TensorLayout::kNhwc, {2, 3}});
  ASSERT_TRUE(list.errors.empty()) << list.errors[0].message;
  ASSERT_EQ(list.rows.size(), 2u);
  EXPECT_EQ(list.rows[0].problem, Parsed("bwd_data,x=2x4x9x9,w=8x4x3x3,bf16,nhwc"));
  EXPECT_EQ(list.rows[1].problem, Parsed("bwd_data,x=3x4x9x9,w=8x4x3x3,bf16,nhwc"));
}

TEST(ProblemListCsvTest, NamesAreCaseInsensitiveAndAnyLineEndWillDo) {
  const ProblemList list = Read("\xEF\xBB\xBF Count , PROBLEM\r\n\r\n# a remark\r\n 3, " +
                                std::string(kQuoted) + " \r\n");
  ASSERT_TRUE(list.errors.empty()) << list.errors[0].message;
  ASSERT_EQ(list.rows.size(), 1u);
  EXPECT_EQ(list.rows[0].count, 3);
  EXPECT_EQ(list.rows[0].source, "list.csv:4");
}

TEST(ProblemListCsvTest, BadRowsDoNotHideGoodOnes) {
  const ProblemList list =
      Read("problem,count\n" + std::string(kQuoted) + ",1\nfwd,x,1\n" + kQuoted + ",2");
  EXPECT_EQ(list.rows.size(), 2u);
  ASSERT_EQ(list.errors.size(), 1u);
  EXPECT_EQ(list.errors[0].source, "list.csv:3");
}

TEST(ProblemListCsvTest, MalformedRowsNameLineColumnAndRule) {
  const std::string text = kQuoted;
  const struct {
    std::string row;
    const char* message;
  } kInputs[] = {
      {text, "row: must have 2 columns as the header, has 1"},
      {text + ",1,", "row: must have 2 columns as the header, has 3"},
      {"nonsense,1", "column problem: "},
      {"\"fwd,x=1x4x9x2,w=8x4x3x3\",1", "column problem: x_dims[3]: output vanishes"},
      {",1", "column problem: "},
      {text + ",one", "column count: \"one\" is not a whole number"},
      {text + ",0", "column count: must be at least 1, is 0"},
      {text + ",-3", "column count: must be at least 1, is -3"},
      {text + ",99999999999999999999", "column count: "},
      {"\"fwd,x=1,1", "row: a quoted field must be closed"},
      {text + "x,1", "row: a quoted field must be closed"},
      {text + ",1\xFF", "line: must be UTF-8 without control characters"},
      {text + ",\x01", "line: must be UTF-8 without control characters"},
  };
  for (const auto& input : kInputs) {
    EXPECT_THAT(OnlyError(Read("problem,count\n" + input.row + "\n")),
                HasSubstr(std::string("list.csv:2: ") + input.message))
        << input.row;
  }
}

TEST(ProblemListCsvTest, TheEnvironmentThatAProblemIsWantedForIsRead) {
  const ProblemList list = Read(
      "problem,environment_text,misses\n"
      "\"fwd,x=1x1x1x1,w=1x1x1x1\",\"nvidia-h200,cudnn=9.12.0\",3\n"
      "\"fwd,x=2x1x1x1,w=1x1x1x1\",,3\n");
  ASSERT_EQ(list.rows.size(), 2U);
  EXPECT_EQ(list.rows[0].environment, "nvidia-h200,cudnn=9.12.0");
  EXPECT_EQ(list.rows[0].count, 3);
  EXPECT_EQ(list.rows[1].environment, "");
  EXPECT_THAT(list.notices, IsEmpty());
}

TEST(ProblemListCsvTest, AnErrorHasTheColumnsNameInTheFile) {
  EXPECT_THAT(OnlyError(Read("problem,misses\n" + std::string(kQuoted) + ",zero\n")),
              HasSubstr("list.csv:2: column misses: \"zero\" is not a whole number"));
}

TEST(ProblemListCsvTest, ADoubledColumnIsOneErrorWhateverFollows) {
  EXPECT_THAT(OnlyError(Read("problem,count,misses\n" + std::string(kQuoted) + ",1,1\n")),
              HasSubstr("list.csv:1: column misses: given twice"));
}

TEST(ProblemListCsvTest, QuotesMayHoldCommasAndQuotes) {
  const ProblemList list =
      Read("problem,\"a, b\"\n" + std::string(kQuoted) + " ,\"c \"\"d\"\", e\"\n");
  EXPECT_EQ(list.rows.size(), 1U);
  EXPECT_THAT(list.notices, ElementsAre("ignored columns: a, b"));
}

}  // namespace
}  // namespace convtune
