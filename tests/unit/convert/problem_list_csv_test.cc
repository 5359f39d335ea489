#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "proto/convert/csv_problems.h"
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

constexpr char kHeader[] = "op,n,c,h,w,k,r,s,pad_h,pad_w,groups,dtype,layout\n";

TEST(CsvProblemsTest, AColumnOfProblemsIsAListOfThem) {
  const std::string text = "fwd,x=1x64x7x7,w=64x64x3x3,pad=1,f16";
  const ProblemList list = Read("problem,environment,misses,last_error\n\"" + text +
                                "\",nvidia-h200,7,\"a, b\"\n\"" + text + "\",nvidia-h200,,\n");
  ASSERT_TRUE(list.errors.empty()) << list.errors[0].message;
  ASSERT_EQ(list.rows.size(), 2U);
  EXPECT_EQ(list.rows[0].problem, Parsed(text));
  EXPECT_EQ(list.rows[0].count, 7);
  EXPECT_EQ(list.rows[1].count, 1);
  EXPECT_THAT(list.notices, ElementsAre("ignored columns: environment, last_error"));
  // What `convtune wanted --csv` prints: its reader has chosen none of the columns.
  EXPECT_THAT(Read("problem,environment,misses,environment_text\n\"" + text + "\",nvidia-h200,7,\n")
                  .notices,
              testing::IsEmpty());
  const ProblemList other = Read("problem\n\"" + text + "\"\n", {.batches = {32}});
  EXPECT_EQ(other.rows.at(0).problem, Parsed("fwd,x=32x64x7x7,w=64x64x3x3,pad=1,f16"));
}

TEST(CsvProblemsTest, AProblemInAColumnThatIsNoneIsAnErrorOfItsRow) {
  const ProblemList list = Read("problem,count\nnonsense,1\n\"fwd,x=1x1x1x1,w=1x1x1x1\",0\n");
  ASSERT_EQ(list.errors.size(), 2U);
  EXPECT_THAT(list.errors[0].source + list.errors[0].message,
              HasSubstr("list.csv:2column problem: "));
  EXPECT_EQ(list.errors[1].message, "column count: must be at least 1, is 0");
}

TEST(CsvProblemsTest, ReadsAWorkloadTable) {
  const ProblemList list = Read(
      "network,count,n,c,h,w,k,r,s,pad_h,pad_w,stride_h,stride_w,dil_h,dil_w,groups,transposed,"
      "bias,dtype,layout,out_h,out_w,gflop,source\n"
      "net,3,32,64,56,56,64,3,3,1,1,2,2,1,1,1,0,0,f16,NCHW(as logged),28,28,7.4,here\n"
      "\"net (a, b)\",1,1,32,9,9,32,3,3,2,2,1,1,2,2,32,0,1,f16;i8,NHWC;NCHW,9,9,0.1,\"a \"\"b\"\"\""
      "\n",
      {.operation = Operation::kFwd});
  ASSERT_TRUE(list.errors.empty()) << list.errors[0].message;
  ASSERT_EQ(list.rows.size(), 5u);
  EXPECT_EQ(list.rows[0].problem, Parsed("fwd,x=32x64x56x56,w=64x64x3x3,pad=1,stride=2,f16"));
  EXPECT_EQ(list.rows[0].count, 3);
  EXPECT_EQ(list.rows[0].source, "list.csv:2");
  const std::string depthwise = "fwd,x=1x32x9x9,w=32x1x3x3,pad=2,dilation=2,groups=32,";
  EXPECT_EQ(list.rows[1].problem, Parsed(depthwise + "f16,nhwc"));
  EXPECT_EQ(list.rows[2].problem, Parsed(depthwise + "f16,nchw"));
  EXPECT_EQ(list.rows[3].problem, Parsed(depthwise + "i8,nhwc"));
  EXPECT_EQ(list.rows[4].problem, Parsed(depthwise + "i8,nchw"));
  EXPECT_EQ(list.rows[4].source, "list.csv:3");
  EXPECT_THAT(list.notices, ElementsAre("ignored columns: network, bias, gflop, source"));
}

TEST(CsvProblemsTest, ReadsDeepBenchsNames) {
  const ProblemList list = Read(
      "set,w,h,c,n,k,filter_w,filter_h,pad_w,pad_h,stride_w,stride_h,precisions,out_w,out_h\n"
      "server,700,161,1,4,32,20,5,0,3,2,1,float;half;int8,341,163\n",
      {.operation = Operation::kFwd});
  ASSERT_TRUE(list.errors.empty()) << list.errors[0].message;
  ASSERT_EQ(list.rows.size(), 3u);
  const std::string text = "fwd,x=4x1x161x700,w=32x1x5x20,pad=3x0,stride=1x2,";
  EXPECT_EQ(list.rows[0].problem, Parsed(text + "f32"));
  EXPECT_EQ(list.rows[1].problem, Parsed(text + "f16"));
  EXPECT_EQ(list.rows[2].problem, Parsed(text + "i8"));
  EXPECT_THAT(list.notices, ElementsAre("ignored columns: set, out_w, out_h"));
}

TEST(CsvProblemsTest, OverridesReplaceColumns) {
  const ProblemList list =
      Read("op,n,c,h,w,k,r,s,dtype,layout\nfwd,32,4,9,9,8,3,3,f16;i8,NHWC;NCHW\n",
           {Operation::kBwdData, DataType::kBF16, TensorLayout::kNhwc, {2}});
  ASSERT_EQ(list.rows.size(), 1u);
  EXPECT_EQ(list.rows[0].problem, Parsed("bwd_data,x=2x4x9x9,w=8x4x3x3,bf16,nhwc"));
}

TEST(CsvProblemsTest, OverridesStandInForMissingColumns) {
  const ProblemList list =
      Read("c,h,w,k,r,s\n4,9,9,8,3,3\n", {.operation = Operation::kBwdFilter, .batches = {7}});
  ASSERT_EQ(list.rows.size(), 1u);
  EXPECT_EQ(list.rows[0].problem, Parsed("bwd_filter,x=7x4x9x9,w=8x4x3x3"));
}

TEST(CsvProblemsTest, EachRowComesWithEachBatch) {
  const ProblemList list =
      Read("op,n,c,h,w,k,r,s,layout\nfwd,1,4,9,9,8,3,3,nchw;nhwc\n", {.batches = {2, 3}});
  ASSERT_EQ(list.rows.size(), 4u);
  EXPECT_EQ(list.rows[0].problem, Parsed("fwd,x=2x4x9x9,w=8x4x3x3"));
  EXPECT_EQ(list.rows[3].problem, Parsed("fwd,x=3x4x9x9,w=8x4x3x3,nhwc"));
  EXPECT_EQ(Read("problem\n\"fwd,x=1x4x9x9,w=8x4x3x3\"\n", {.batches = {2, 3}}).rows.size(), 2u);
}

TEST(CsvProblemsTest, ReadsThreeSpatialDimensions) {
  const ProblemList list = Read(
      "op,n,c,d,h,w,k,t,r,s,pad_d,pad_h,pad_w,dilation_d,stride_d\n"
      "fwd,1,4,8,9,10,8,3,2,1,1,0,0,2,2\nfwd,1,4,,9,10,8,,2,1,,0,0,,\n");
  ASSERT_TRUE(list.errors.empty()) << list.errors[0].message;
  ASSERT_EQ(list.rows.size(), 2u);
  EXPECT_EQ(list.rows[0].problem,
            Parsed("fwd,x=1x4x8x9x10,w=8x4x3x2x1,pad=1x0x0,stride=2x1x1,dilation=2x1x1"));
  EXPECT_EQ(list.rows[1].problem, Parsed("fwd,x=1x4x9x10,w=8x4x2x1"));
}

// Input 1x16x8x8, 32 output channels of 16x16: the data gradient of a
// convolution from 1x32x16x16 to 1x16x8x8.
constexpr char kTransposed[] =
    "op,n,c,h,w,k,r,s,pad_h,pad_w,stride_h,stride_w,transposed,out_h,out_w\n";

TEST(CsvProblemsTest, ATransposedForwardIsADataGradient) {
  const ProblemList list = Read(std::string(kTransposed) +
                                "fwd,1,16,8,8,32,4,4,1,1,2,2,1,16,16\n"
                                "bwd_data,1,16,8,8,32,4,4,1,1,2,2,true,16,16\n"
                                "bwd_filter,1,16,8,8,32,4,4,1,1,2,2,1,16,16\n");
  ASSERT_TRUE(list.errors.empty()) << list.errors[0].message;
  ASSERT_EQ(list.rows.size(), 3u);
  const std::string shape = ",x=1x32x16x16,w=16x32x4x4,pad=1,stride=2";
  EXPECT_EQ(list.rows[0].problem, Parsed("bwd_data" + shape));
  EXPECT_EQ(list.rows[1].problem, Parsed("fwd" + shape));
  EXPECT_EQ(list.rows[2].problem, Parsed("bwd_filter" + shape));
  EXPECT_TRUE(list.notices.empty());
}

TEST(CsvProblemsTest, ATransposedRowsOutputMustFit) {
  EXPECT_THAT(OnlyError(Read(std::string(kTransposed) + "fwd,1,16,8,8,32,4,4,1,1,2,2,1,18,16\n")),
              HasSubstr("list.csv:2: column out_h: does not fit"));
  EXPECT_THAT(OnlyError(Read(std::string(kTransposed) + "fwd,1,16,8,8,32,4,4,1,1,2,2,1,,16\n")),
              HasSubstr("column out_h: required, is empty"));
}

TEST(CsvProblemsTest, NamesAreCaseInsensitiveAndAnyLineEndWillDo) {
  const ProblemList list = Read(
      "\xEF\xBB\xBFOP, N ,C,H,W,K,R,S,DType\r\n\r\n# a remark\r\nFWD, 1 ,4,9,9,8,3,3, FP16 \r\n");
  ASSERT_EQ(list.rows.size(), 1u);
  EXPECT_EQ(list.rows[0].problem, Parsed("fwd,x=1x4x9x9,w=8x4x3x3,f16"));
  EXPECT_EQ(list.rows[0].source, "list.csv:4");
}

TEST(CsvProblemsTest, BadRowsDoNotHideGoodOnes) {
  const ProblemList list = Read(std::string(kHeader) +
                                "fwd,1,4,9,9,8,3,3,0,0,1,f16,nchw\nfwd,x\n"
                                "fwd,2,4,9,9,8,3,3,0,0,1,f16,nchw");
  EXPECT_EQ(list.rows.size(), 2u);
  ASSERT_EQ(list.errors.size(), 1u);
  EXPECT_EQ(list.errors[0].source, "list.csv:3");
}

TEST(CsvProblemsTest, MalformedRowsNameLineColumnAndRule) {
  const struct {
    std::string row;
    const char* message;
  } kInputs[] = {
      {"fwd,1,4,9,9,8,3,3,0,0,1,f16", "row: must have 13 columns as the header, has 12"},
      {"fwd,1,4,9,9,8,3,3,0,0,1,f16,nchw,", "row: must have 13 columns as the header, has 14"},
      {"fwd,one,4,9,9,8,3,3,0,0,1,f16,nchw", "column n: \"one\" is not a whole number"},
      {"fwd,1.5,4,9,9,8,3,3,0,0,1,f16,nchw", "column n: \"1.5\" is not a whole number"},
      {"fwd,,4,9,9,8,3,3,0,0,1,f16,nchw", "column n: required, is empty"},
      {"fwd,0,4,9,9,8,3,3,0,0,1,f16,nchw", "column n: must be from 1 to 2^31-1, is 0"},
      {"fwd,1,4,-9,9,8,3,3,0,0,1,f16,nchw", "column h: must be from 1 to 2^31-1, is -9"},
      {"fwd,1,0,9,9,8,3,3,0,0,1,f16,nchw", "column c: must be from 1 to 2^31-1, is 0"},
      {"fwd,1,4,9,9,8,3,99999999999999999999,0,0,1,f16,nchw", "column s: "},
      {"fwd,1,4,9,9,8,3,2147483648,0,0,1,f16,nchw", "column s: must be from 1 to 2^31-1"},
      {"fwd,1,4,9,9,8,3,3,-1,0,1,f16,nchw", "column pad_h: must be from 0 to 2^31-1, is -1"},
      {"fwd,1,4,9,9,8,3,3,0,0,3,f16,nchw", "column groups: must be at least 1 and divide the 4"},
      {"fwd,1,4,9,9,8,3,3,0,0,0,f16,nchw", "column groups: must be at least 1"},
      {"fwd,1,4,9,9,6,3,3,0,0,4,f16,nchw", "column groups: must divide the 6 filters"},
      {"fwd,1,4,9,2,8,3,3,0,0,1,f16,nchw", "column w: output vanishes"},
      {"fwd,1,4,9,9,8,3,3,0,0,1,f17,nchw", "column dtype: must be f64, f32"},
      {"fwd,1,4,9,9,8,3,3,0,0,1,int8x4,nchw", "column dtype: vectorised INT8x4"},
      {"fwd,1,4,9,9,8,3,3,0,0,1,f16,chwn", "column layout: must be nchw or nhwc, is \"chwn\""},
      {"fwd,1,4,9,9,8,3,3,0,0,1,i8,NC4HW4", "column layout: vectorised INT8x4"},
      {"bwd_data,1,4,9,9,8,3,3,0,0,1,i8,nhwc", "column dtype: i8 must be forward only"},
      {"conv,1,4,9,9,8,3,3,0,0,1,f16,nchw", "column op: must be fwd, bwd_data or bwd_filter"},
      {"fwd,1,4,9,9,8,3,3,0,0,1,\"f16,nchw", "row: a quoted field must be closed"},
      {"fwd,1,4,9,9,8,3,3,0,0,1,\"f16\"x,nchw", "row: a quoted field must be closed"},
      {"fwd,1,4,9,9,8,3,3,0,0,1,f16,nchw\xFF", "column 13: must be valid UTF-8"},
      {"fwd,1,4\x01,9,9,8,3,3,0,0,1,f16,nchw", "column 3: must not have control characters"},
  };
  for (const auto& input : kInputs) {
    EXPECT_THAT(OnlyError(Read(kHeader + input.row + "\n")),
                HasSubstr(std::string("list.csv:2: ") + input.message))
        << input.row;
  }
}

TEST(CsvProblemsTest, TheFilesOwnColumnNameIsInTheMessage) {
  EXPECT_THAT(OnlyError(Read("op,n,c,h,w,k,Filter_H,filter_w\nfwd,1,1,1,1,1,0,1\n")),
              HasSubstr("column Filter_H: must be from 1"));
}

TEST(CsvProblemsTest, ACountMustBePositive) {
  for (const char* count : {"0", "-3", "2147483648"}) {
    EXPECT_THAT(OnlyError(Read("op,n,c,h,w,k,r,s,count\nfwd,1,1,1,1,1,1,1," + std::string(count))),
                HasSubstr("column count: must be from 1 to 2^31-1"));
  }
}

TEST(CsvProblemsTest, TheEnvironmentThatAProblemIsWantedForIsRead) {
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

TEST(CsvProblemsTest, AMissingColumnIsOneErrorWhateverFollows) {
  EXPECT_THAT(OnlyError(Read("op,n,c,h,w,k,r\nfwd,1,1,1,1,1,1\nfwd,1,1,1,1,1,1\n")),
              HasSubstr("list.csv:1: column s: required, and missing in the header"));
  EXPECT_THAT(OnlyError(Read("n,c,h,w,k,r,s\n1,1,1,1,1,1,1\n")), HasSubstr("column op: required"));
}

TEST(CsvProblemsTest, ADoubledColumnIsRefused) {
  EXPECT_THAT(OnlyError(Read("op,n,c,h,w,k,r,s,filter_w\nfwd,1,1,1,1,1,1,1,1\n")),
              HasSubstr("list.csv:1: column filter_w: given twice"));
}

TEST(CsvProblemsTest, AnUnclosedQuoteInTheHeaderIsRefused) {
  EXPECT_FALSE(LooksLikeCsvHeader("n,c,\"h"));
}

TEST(CsvProblemsTest, QuotesMayHoldCommasAndQuotes) {
  const std::string header = "problem, \"no \"\"te\"\"\" ,count\n";
  const std::string problem = "\"fwd,x=1x1x1x1,w=1x1x1x1\"";
  const ProblemList list = Read(header + problem + R"( , "d ""e"", f",2)" + "\n");
  EXPECT_THAT(list.notices, ElementsAre("ignored columns: no \\\"te\\\""));
  ASSERT_EQ(list.rows.size(), 1u);
  EXPECT_EQ(list.rows[0].count, 2);
  for (const char* bad : {"\"a,1\n", "\"a\"b,1\n"}) {
    EXPECT_THAT(OnlyError(Read(header + problem + "," + bad)),
                HasSubstr("row: a quoted field must be closed and end at a comma"));
  }
}

}  // namespace
}  // namespace convtune
