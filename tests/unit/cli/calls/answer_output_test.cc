#include "client/cli/calls/answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "client/cli/input/problem_args.h"
#include "proto/model/problem/conv_problem.h"

namespace convtune::cli::calls {
namespace {

using ::testing::HasSubstr;

TEST(ShortProblemTest, LeavesOutWhatIsReadAnyway) {
  EXPECT_EQ(
      input::ShortProblem("fwd,x=16x64x56x56,w=64x64x3x3,pad=1x1,stride=1x1,dilation=1x1,groups=1,"
                          "nhwc,f16,acc=f32"),
      "fwd,x=16x64x56x56,w=64x64x3x3,pad=1,nhwc,f16");
}

TEST(ShortProblemTest, IsReadAsTheSameProblem) {
  for (const char* text :
       {"bwd_filter,x=2x8x9x9,w=8x4x3x5,pad=1:0x2:1,stride=2x1,groups=2,nchw,f32",
        "fwd,x=1x8x4x8x8,w=8x8x3x3x3,pad=1,dilation=2,nhwc,bf16,out=f32",
        "fwd,x=1x8x8x8,w=8x8x3x3,i8", "fwd,x=1x8x8x8,w=8x8x3x3,f16,acc=f16,align=4,mode=conv"}) {
    const auto problem = ConvProblem::Parse(text);
    ASSERT_TRUE(problem.ok()) << text << ": " << problem.status();
    const std::string shorter = input::ShortProblem(problem->ToText());
    EXPECT_LE(shorter.size(), problem->ToText().size());
    EXPECT_EQ(*ConvProblem::Parse(shorter), *problem) << shorter;
  }
}

TEST(ShortProblemTest, LeavesWhatItCannotReadAlone) {
  EXPECT_EQ(input::ShortProblem("from a newer daemon"), "from a newer daemon");
  EXPECT_EQ(input::ShortProblem(""), "");
}

std::string TableText(const AnswerRow& row) {
  const auto fields_of = [](const AnswerRow& one) { return AnswerFields(one, {}); };
  return output::TableOf(std::vector<AnswerRow>{row}, fields_of).Render(0, false);
}

TEST(AnswerTableTest, AMissShowsItsJobAndItsHint) {
  AnswerRow row;
  v1::Miss* miss = row.result.mutable_miss();
  miss->set_reason(v1::MISS_REASON_NOT_FOUND);
  miss->set_job("jobs/7");
  miss->mutable_hint()->set_environment("nvidia-h200");
  miss->mutable_hint()->mutable_winner()->set_text("graph:eng9");
  for (const auto& [environment, source] : std::vector<std::pair<std::string, std::string>>{
           {"", "nvidia-h200"},
           {"nvidia-h200,cc=9.0,sms=132,cudnn=9.12.0,lib=full", "cuDNN 9.12.0 (nvidia-h200)"},
           {"from a newer daemon", "nvidia-h200"}}) {
    miss->mutable_hint()->set_environment_text(environment);
    const std::string out = TableText(row);
    EXPECT_THAT(out, HasSubstr(absl::StrCat("not found; queued as jobs/7; hint from ", source,
                                            ": graph:eng9")));
  }
}

TEST(AnswerTableTest, APinIsShown) {
  AnswerRow row;
  row.result.mutable_answer()->set_evidence(v1::EVIDENCE_MEASURED);
  row.result.mutable_answer()->set_pinned(true);
  EXPECT_THAT(TableText(row), HasSubstr("measured, pinned"));
}

}  // namespace
}  // namespace convtune::cli::calls
