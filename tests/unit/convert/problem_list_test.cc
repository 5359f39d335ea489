#include "proto/convert/problem_list.h"

#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <string>

namespace convtune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ProblemList Read(const std::string& text, const ProblemOverrides& overrides = {}) {
  std::istringstream in(text);
  return ReadProblemList(in, "list", overrides);
}

ConvProblem Parsed(std::string_view text) { return *ConvProblem::Parse(text); }

std::string FirstError(const ProblemList& list) {
  return list.errors.empty() ? "no error" : list.errors[0].source + ": " + list.errors[0].message;
}

constexpr char kText[] = "fwd,x=1x4x9x9,w=8x4x3x3";

TEST(ProblemListTest, ReadsTextForms) {
  const ProblemList list =
      Read("# a list\n\n  fwd,x=1x4x9x9,w=8x4x3x3  \r\nbwd_data,x=1x4x9x9,w=8x4x3x3,f16\n");
  ASSERT_TRUE(list.errors.empty()) << FirstError(list);
  ASSERT_EQ(list.rows.size(), 2u);
  EXPECT_EQ(list.rows[0].problem, Parsed(kText));
  EXPECT_EQ(list.rows[0].source, "list:3");
  EXPECT_EQ(list.rows[0].count, 1);
  EXPECT_EQ(list.rows[1].source, "list:4");
}

TEST(ProblemListTest, ReadsJsonLines) {
  const ProblemList list =
      Read(R"({"operation":"OPERATION_FWD","xDims":[1,4,9,9],"w_dims":["8","4","3","3"],)"
           R"("dataType":"DATA_TYPE_F16","padLow":[1]})"
           "\n");
  ASSERT_TRUE(list.errors.empty()) << FirstError(list);
  ASSERT_EQ(list.rows.size(), 1u);
  EXPECT_EQ(list.rows[0].problem, Parsed("fwd,x=1x4x9x9,w=8x4x3x3,pad=1,f16"));
}

TEST(ProblemListTest, AnUnknownJsonFieldIsNamed) {
  const ProblemList list = Read("{\"operation\":\"OPERATION_FWD\",\"paddings\":[1]}\n");
  EXPECT_TRUE(list.rows.empty());
  EXPECT_EQ(FirstError(list), "list:1: json: paddings: Cannot find field.");
}

TEST(ProblemListTest, BrokenJsonIsOneErrorALine) {
  for (const char* line :
       {"{", "{}}", "{\"operation\":\"OPERATION_NONE\"}", "{\"xDims\":[1.5]}", "{\"xDims\":\"a\"}",
        "{\"groups\":99999999999999999999}", "{\"text\":\"fwd\"}"}) {
    const ProblemList list = Read(std::string(line) + "\n" + kText + "\n");
    EXPECT_EQ(list.errors.size(), 1u) << line;
    EXPECT_EQ(list.rows.size(), 1u) << line;
    EXPECT_THAT(FirstError(list), HasSubstr("list:1: json: ")) << line;
  }
}

TEST(ProblemListTest, JsonViolationsNameTheField) {
  const ProblemList list =
      Read(R"({"operation":"OPERATION_FWD","xDims":[0,4,9,9],"wDims":[8,4,3,3]})");
  EXPECT_THAT(FirstError(list), HasSubstr("list:1: x_dims[0]: must be from 1 to 2^31-1, is 0"));
}

TEST(ProblemListTest, DeeplyNestedJsonIsRefused) {
  std::string line = "{\"xDims\":";
  line.append(20000, '[');
  EXPECT_EQ(Read(line).errors.size(), 1u);
}

TEST(ProblemListTest, OverridesApplyToEveryForm) {
  const ProblemOverrides overrides = {
      Operation::kBwdFilter, DataType::kF16, TensorLayout::kNhwc, {32}};
  const ProblemList list = Read(
      "fwd,x=1x4x9x9,w=8x4x3x3,f32,out=f32,acc=f32\n"
      R"({"operation":"OPERATION_FWD","xDims":[1,4,9,9],"wDims":[8,4,3,3]})"
      "\nfwd,x=1x4x9x9,w=8x4x3x3,xstrides=400x90x10x1,wstrides=36x9x3x1,ystrides=392x49x7x1\n",
      overrides);
  ASSERT_TRUE(list.errors.empty()) << FirstError(list);
  ASSERT_EQ(list.rows.size(), 3u);
  for (const ProblemRow& row : list.rows) {
    EXPECT_EQ(row.problem, Parsed("bwd_filter,x=32x4x9x9,w=8x4x3x3,f16,nhwc")) << row.source;
  }
}

TEST(ProblemListTest, ALineWithOpenSizesIsAProblemForEach) {
  const ProblemList list = Read("fwd,x=[1,8]x4x[9..11/2]x[=],w=8x4x3x3\n");
  ASSERT_TRUE(list.errors.empty()) << FirstError(list);
  ASSERT_EQ(list.rows.size(), 4u);
  EXPECT_EQ(list.rows[1].problem, Parsed("fwd,x=1x4x11x11,w=8x4x3x3"));
  EXPECT_EQ(list.rows[2].problem, Parsed("fwd,x=8x4x9x9,w=8x4x3x3"));
  EXPECT_EQ(list.rows[3].source, "list:1");
}

TEST(ProblemListTest, OpenSizesThatDoNotFitAreOneErrorThatNamesTheFirst) {
  const ProblemList list = Read("fwd,x=1x4x[1,2,9]x9,w=8x4x3x3\nfwd,x=1x4x[9,w=8x4x3x3\n");
  EXPECT_EQ(list.rows.size(), 1u);
  ASSERT_EQ(list.errors.size(), 2u);
  EXPECT_THAT(FirstError(list), HasSubstr(" in fwd,x=1x4x1x9,w=8x4x3x3"));
  EXPECT_THAT(list.errors[1].message, HasSubstr("x: brackets must come in pairs"));
}

TEST(ProblemListTest, EachProblemComesWithEachBatch) {
  const ProblemList list = Read(
      "fwd,x=1x4x9x9,w=8x4x3x3\n"
      R"({"operation":"OPERATION_FWD","xDims":[1,4,7,7],"wDims":[8,4,3,3]})"
      "\n",
      {.batches = {2, 16}});
  ASSERT_EQ(list.rows.size(), 4u);
  EXPECT_EQ(list.rows[1].problem, Parsed("fwd,x=16x4x9x9,w=8x4x3x3"));
  EXPECT_EQ(list.rows[2].problem, Parsed("fwd,x=2x4x7x7,w=8x4x3x3"));
}

TEST(ProblemListTest, SizesTimesBatchesHaveALimit) {
  const ProblemList list = Read("fwd,x=1x8x[1..5000]x8,w=8x8x1x1\n", {.batches = {1, 2, 3}});
  ASSERT_EQ(list.errors.size(), 1U);
  EXPECT_THAT(FirstError(list), HasSubstr("sizes: must stand for at most 10000 problems"));
  EXPECT_TRUE(list.rows.empty());
}

TEST(ProblemListTest, AnOverrideThatBreaksAProblemIsAnErrorOfItsLine) {
  const ProblemList list =
      Read("fwd,x=1x4x9x9,w=8x4x3x3,epilogue=bias\n", {.operation = Operation::kBwdData});
  EXPECT_THAT(FirstError(list), HasSubstr("list:1: epilogue: "));
}

TEST(ProblemListTest, BadLinesDoNotHideGoodOnes) {
  const ProblemList list = Read(std::string(kText) + "\nfwd,nope\n" + kText + "\n");
  EXPECT_EQ(list.rows.size(), 2u);
  ASSERT_EQ(list.errors.size(), 1u);
  EXPECT_THAT(FirstError(list), HasSubstr("list:2: nope: unknown token"));
}

TEST(ProblemListTest, AnEmptyListIsAnError) {
  for (const char* text : {"", "\n\n", "# nothing\n", "\xEF\xBB\xBF", "problem,count\n"}) {
    EXPECT_EQ(FirstError(Read(text)), "list: file: must hold at least one problem");
  }
}

TEST(ProblemListTest, AHeaderAloneOfWhatIsWantedIsANotice) {
  const ProblemList list = Read("problem,misses,environment_text\n");
  EXPECT_TRUE(list.errors.empty());
  EXPECT_THAT(list.notices, ElementsAre("list: nothing is wanted"));
}

TEST(ProblemListTest, ALineOfTenMegabytesIsOneShortError) {
  const std::string line(10 << 20, 'x');
  const ProblemList list = Read(std::string(kText) + "\n" + line + "\n" + kText + "\n");
  EXPECT_EQ(list.rows.size(), 2u);
  ASSERT_EQ(list.errors.size(), 1u);
  EXPECT_EQ(FirstError(list), "list:2: line: must be at most 65536 bytes");
  EXPECT_EQ(FirstError(Read(line)), "list:1: line: must be at most 65536 bytes");
}

TEST(ProblemListTest, InvalidUtf8IsOneError) {
  const ProblemList list = Read(std::string(kText) + "\nfwd,\xFFx\n");
  EXPECT_EQ(FirstError(list),
            "list:2: line: must be UTF-8 without control characters, is \"fwd,\\xffx\"");
  EXPECT_THAT(FirstError(Read(std::string("fwd,\0x", 6))),
              HasSubstr("list:1: line: must be UTF-8"));
}

TEST(ProblemListTest, ReadingStopsAfterAThousandErrors) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "fwd,nope\n";
  const ProblemList list = Read(text);
  EXPECT_EQ(list.errors.size(), 1000u);
  ASSERT_EQ(list.notices.size(), 1u);
  EXPECT_EQ(list.notices[0], "reading stopped at list:1000: too many errors");
}

TEST(ProblemListTest, RandomBytesNeverCrash) {
  std::mt19937_64 random(20260117);
  const std::string valid =
      "problem\n\"fwd,x=1x4x9x9,w=8x4x3x3,f16\"\n\"fwd,x=1x4x9x9,w=8x4x3x3,i8\"\n";
  for (int i = 0; i < 10000; ++i) {
    std::string text = valid;
    for (int k = 0; k < 3; ++k) text[random() % text.size()] = static_cast<char>(random());
    const ProblemList list = Read(text);
    ASSERT_FALSE(list.rows.empty() && list.errors.empty());
    for (const ProblemRowError& error : list.errors) {
      ASSERT_THAT(error.source, HasSubstr("list"));
      ASSERT_THAT(error.message, HasSubstr(": "));
    }
  }
}

TEST(ProblemListTest, AFileIsReadByName) {
  const std::string path = testing::TempDir() + "problem_list_test." + std::to_string(getpid());
  std::ofstream(path) << kText << "\n";
  const absl::StatusOr<ProblemList> list = ReadProblemListFile(path, {});
  std::remove(path.c_str());
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->rows.size(), 1u);
  EXPECT_EQ(list->rows[0].source, path + ":1");
}

TEST(ProblemListTest, AMissingFileIsNotFound) {
  const absl::Status status = ReadProblemListFile(testing::TempDir() + "no/such/file", {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no/such/file"));
}

TEST(ProblemListTest, AModelIsRefusedWithTheCommandThatListsIt) {
  EXPECT_EQ(ReadProblemListFile("nets/Model.ONNX", {}).status().message(),
            "nets/Model.ONNX: must be a list of problems, is an ONNX model: `python3 -m convtune "
            "problems nets/Model.ONNX` prints its list");
}

TEST(ProblemListTest, ADirectoryIsRefused) {
  EXPECT_EQ(ReadProblemListFile(testing::TempDir(), {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

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
  EXPECT_EQ(list.rows[0].source, "list:2");
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
  EXPECT_EQ(list.rows[0].source, "list:4");
}

TEST(ProblemListCsvTest, BadRowsDoNotHideGoodOnes) {
  const ProblemList list =
      Read("problem,count\n" + std::string(kQuoted) + ",1\nfwd,x,1\n" + kQuoted + ",2");
  EXPECT_EQ(list.rows.size(), 2u);
  ASSERT_EQ(list.errors.size(), 1u);
  EXPECT_EQ(list.errors[0].source, "list:3");
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
                HasSubstr(std::string("list:2: ") + input.message))
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
              HasSubstr("list:2: column misses: \"zero\" is not a whole number"));
}

TEST(ProblemListCsvTest, ADoubledColumnIsOneErrorWhateverFollows) {
  EXPECT_THAT(OnlyError(Read("problem,count,misses\n" + std::string(kQuoted) + ",1,1\n")),
              HasSubstr("list:1: column misses: given twice"));
}

TEST(ProblemListCsvTest, QuotesMayHoldCommasAndQuotes) {
  const ProblemList list =
      Read("problem,\"a, b\"\n" + std::string(kQuoted) + " ,\"c \"\"d\"\", e\"\n");
  EXPECT_EQ(list.rows.size(), 1U);
  EXPECT_THAT(list.notices, ElementsAre("ignored columns: a, b"));
}

ProblemRow Row(const std::string& text, int64_t count, const std::string& source) {
  return {ConvProblem::Parse(text).value(), count, source};
}

TEST(ProblemOrderTest, FlopsAreTwoForEachMultiplication) {
  const auto problem = ConvProblem::Parse("fwd,x=2x4x5x5,w=6x2x3x3,pad=1,groups=2").value();
  EXPECT_EQ(EstimatedFlops(problem), 2.0 * (2 * 6 * 5 * 5) * (2 * 3 * 3));
}

TEST(ProblemOrderTest, CountTimesFlopsDecides) {
  const std::vector<ProblemRow> ordered = MostWorkFirst(
      {Row("fwd,x=1x8x8x8,w=8x8x1x1", 1, "a"), Row("fwd,x=2x8x8x8,w=8x8x1x1", 1, "b"),
       Row("fwd,x=1x8x8x8,w=8x8x3x3,pad=1", 1, "c"), Row("fwd,x=4x8x8x8,w=8x8x1x1", 3, "d")});
  std::string sources;
  for (const ProblemRow& row : ordered) sources += row.source;
  EXPECT_EQ(sources, "dcba");
}

TEST(ProblemOrderTest, DoublesAreOneWithTheirCountsTogether) {
  const std::vector<ProblemRow> ordered =
      MostWorkFirst({Row("fwd,x=1x8x8x8,w=8x8x1x1", 2, "a"), Row("fwd,x=1x8x8x8,w=8x8x3x3", 1, "b"),
                     Row("fwd,x=1x8x8x8,w=8x8x1x1,pad=0", 40, "c")});
  ASSERT_EQ(ordered.size(), 2U);
  EXPECT_EQ(ordered[0].source, "a");
  EXPECT_EQ(ordered[0].count, 42);
}

TEST(ProblemOrderTest, DistinctRowsKeepTheOrderOfTheList) {
  const std::vector<ProblemRow> rows =
      Distinct({Row("fwd,x=1x8x8x8,w=8x8x1x1", 2, "a"), Row("fwd,x=1x8x8x8,w=8x8x3x3", 1, "b"),
                Row("fwd,x=1x8x8x8,w=8x8x1x1", 3, "c")});
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].source, "a");
  EXPECT_EQ(rows[0].count, 5);
  EXPECT_EQ(rows[1].source, "b");
}

TEST(ProblemOrderTest, CountsDoNotOverflow) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(MostWorkFirst({Row("fwd,x=1x8x8x8,w=8x8x1x1", kMost, "a"),
                           Row("fwd,x=1x8x8x8,w=8x8x1x1", kMost, "b")})[0]
                .count,
            kMost);
}

TEST(ProblemOrderTest, EqualsKeepTheOrderOfTheList) {
  const std::vector<ProblemRow> ordered = MostWorkFirst(
      {Row("bwd_data,x=1x8x8x8,w=8x8x1x1", 1, "a"), Row("fwd,x=1x8x8x8,w=8x8x1x1", 1, "b")});
  EXPECT_EQ(ordered[0].source, "a");
}

}  // namespace
}  // namespace convtune
