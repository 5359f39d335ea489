#include "proto/model/problem/conv_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "convtune/v1/problem.pb.h"

namespace convtune {
namespace {

using testing::ElementsAre;

TEST(ProblemTextTest, HasOneCanonicalForm) {
  const struct {
    const char* what;
    const char* text;
    const char* canonical;
  } kCases[] = {
      {"the defaults are filled in", "fwd,x=16x64x56x56,w=64x64x3x3",
       "fwd,x=16x64x56x56,w=64x64x3x3,pad=0x0,stride=1x1,dilation=1x1,groups=1,nchw,f32,acc=f32"},
      {"the documentation's example stays",
       "fwd,x=16x64x56x56,w=64x64x3x3,pad=1x1,stride=1x1,dilation=1x1,groups=1,nhwc,f16,acc=f32",
       "fwd,x=16x64x56x56,w=64x64x3x3,pad=1x1,stride=1x1,dilation=1x1,groups=1,nhwc,f16,acc=f32"},
      {"scalars are spread", "fwd,x=2x4x9x9x9,w=4x4x3x3x3,pad=1,stride=2,dilation=1",
       "fwd,x=2x4x9x9x9,w=4x4x3x3x3,pad=1x1x1,stride=2x2x2,dilation=1x1x1,groups=1,nchw,f32,"
       "acc=f32"},
      {"one dimension is printed as two", "fwd,x=2x4x9,w=4x4x3,pad=1,stride=2,dilation=2",
       "fwd,x=2x4x1x9,w=4x4x1x3,pad=0x1,stride=1x2,dilation=1x2,groups=1,nchw,f32,acc=f32"},
      {"asymmetric padding is kept", "fwd,x=2x4x9x9,w=4x4x3x3,pad=1:0x1:0",
       "fwd,x=2x4x9x9,w=4x4x3x3,pad=1:0x1:0,stride=1x1,dilation=1x1,groups=1,nchw,f32,acc=f32"},
      {"asymmetric padding is spread", "fwd,x=2x4x9x9,w=4x4x3x3,pad=1:2",
       "fwd,x=2x4x9x9,w=4x4x3x3,pad=1:2x1:2,stride=1x1,dilation=1x1,groups=1,nchw,f32,acc=f32"},
      {"plain and asymmetric padding are mixed", "fwd,x=2x4x9x9,w=4x4x3x3,pad=1x0:2",
       "fwd,x=2x4x9x9,w=4x4x3x3,pad=1:1x0:2,stride=1x1,dilation=1x1,groups=1,nchw,f32,acc=f32"},
      {"equal sides are one number", "fwd,x=2x4x9x9,w=4x4x3x3,pad=1:1x2:2",
       "fwd,x=2x4x9x9,w=4x4x3x3,pad=1x2,stride=1x1,dilation=1x1,groups=1,nchw,f32,acc=f32"},
      {"every optional token has its place",
       "fwd,sms=100,align=4,epilogue=add+bias+relu,mode=conv,mid=f16,acc=f16,out=f32,f16,nhwc,"
       "groups=2,dilation=2,stride=2,pad=1,w=8x2x3x3,x=1x4x9x9",
       "fwd,x=1x4x9x9,w=8x2x3x3,pad=1x1,stride=2x2,dilation=2x2,groups=2,nhwc,f16,out=f32,"
       "acc=f16,mid=f16,mode=conv,epilogue=add+bias+relu,align=4,sms=100"},
      {"the default mode is left out, and blanks are trimmed",
       "  fwd , x = 1x1x3x3\t, w= 1x1x3x3 , f16 ,mode=xcorr\r\n",
       "fwd,x=1x1x3x3,w=1x1x3x3,pad=0x0,stride=1x1,dilation=1x1,groups=1,nchw,f16,acc=f32"},
      {"strides are printed where no packed layout fits",
       "fwd,x=2x3x4x5,w=2x3x1x1,xstrides=100x20x5x1,wstrides=3x1x1x1,ystrides=40x20x5x1",
       "fwd,x=2x3x4x5,w=2x3x1x1,pad=0x0,stride=1x1,dilation=1x1,groups=1,"
       "xstrides=100x20x5x1,wstrides=3x1x1x1,ystrides=40x20x5x1,f32,acc=f32"},
  };
  for (const auto& c : kCases) {
    const absl::StatusOr<ConvProblem> problem = ConvProblem::Parse(c.text);
    ASSERT_TRUE(problem.ok()) << c.what << ": " << problem.status();
    EXPECT_EQ(problem->ToText(), c.canonical) << c.what;
  }
}

TEST(ProblemTextTest, SaysNothingOfTheProblemWhileTokensCannotBeRead) {
  std::vector<Violation> violations;
  EXPECT_FALSE(ConvProblem::Parse("fwd,x=0x1x1x1,w=1x1x1x1,foo=1", &violations));
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].field, "foo");
}

TEST(ProblemTextTest, CollectsEveryUnreadableToken) {
  std::vector<Violation> violations;
  ParseProblemTokens("fwd,x=axb,w=1,f99,pad=-,pad=2", &violations);
  std::vector<std::string> fields;
  for (const Violation& violation : violations) fields.push_back(violation.field);
  EXPECT_THAT(fields, ElementsAre("x", "f99", "pad", "pad"));
}

TEST(ProblemTextTest, EscapesWhatItQuotes) {
  std::vector<Violation> violations;
  ParseProblemTokens("fwd,x=1x1x1x1,w=1x1x1x1,\xC3\xA9t\"", &violations);
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].field, "ét\\\"");
}

TEST(ProblemTextTest, ReadsATextOfTheLargestSize) {
  std::string text = "fwd,x=1x1x3x3,w=1x1x3x3";
  text.append(4096 - text.size(), ' ');
  EXPECT_TRUE(ConvProblem::Parse(text).ok());
  text.push_back(' ');
  EXPECT_FALSE(ConvProblem::Parse(text).ok());
}

}  // namespace
}  // namespace convtune
