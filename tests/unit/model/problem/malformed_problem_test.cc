#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/match.h"
#include "convtune/v1/problem.pb.h"
#include "google/protobuf/text_format.h"
#include "proto/model/problem/conv_problem.h"

namespace convtune {
namespace {

struct Malformed {
  std::string text;
  std::string field;
  std::string rule;  // part of it
};

// A valid text up to where the fault is added.
std::string Ok(const std::string& more) { return "fwd,x=8x16x9x9,w=32x16x3x3," + more; }

std::vector<Malformed> Inputs() {
  const std::string strided = "fwd,x=2x3x4x5,w=2x3x1x1,";
  return {
      {"", "text", "must not be empty"},
      {" \t ", "text", "must not be empty"},
      {",", "operation", "first token"},
      {"forward,x=8x16x9x9,w=32x16x3x3", "operation", "must be fwd, bwd_data or bwd_filter"},
      {"x=8x16x9x9,fwd,w=32x16x3x3", "operation", "first token"},
      {"FWD,x=8x16x9x9,w=32x16x3x3", "operation", "first token"},
      {Ok("bwd_data"), "operation", "given twice"},
      {Ok("fwd"), "operation", "given twice"},
      {Ok("nope"), "nope", "unknown token"},
      {Ok("nope=1"), "nope", "unknown token"},
      {Ok("=1"), "text", "name before each '='"},
      {Ok(""), "text", "empty token"},
      {Ok(",f16"), "text", "empty token"},
      {Ok("f16,f16"), "f16", "a second data type"},
      {Ok("f16,f32"), "f32", "a second data type"},
      {Ok("nchw,nhwc"), "nhwc", "a second layout"},
      {Ok("x=8x16x9x9"), "x", "given twice"},
      {Ok("pad=1,pad=1"), "pad", "given twice"},
      {Ok("acc=f32,acc=f32"), "acc", "given twice"},
      {Ok("groups="), "groups", "not a whole number"},
      {Ok("groups=two"), "groups", "not a whole number"},
      {Ok("groups=+1"), "groups", "not a whole number"},
      {Ok("groups=1.0"), "groups", "not a whole number"},
      {Ok("groups=0x1"), "groups", "not a whole number"},
      {Ok("groups=9223372036854775808"), "groups", "does not fit into 64 bits"},
      {Ok("pad=1xx1"), "pad", "not a whole number"},
      {Ok("pad=1:"), "pad", "not a whole number"},
      {Ok("pad=1:2:3"), "pad", "not a whole number"},
      {Ok("stride=1 x1"), "stride", "not a whole number"},
      {Ok("stride=99999999999999999999"), "stride", "does not fit into 64 bits"},
      {Ok("out=f8"), "out", "must be f64, f32"},
      {Ok("acc="), "acc", "must be f64, f32"},
      {Ok("mid=quarter"), "mid", "must be f64, f32"},
      {Ok("mode=flip"), "mode", "must be conv or xcorr"},
      {Ok("epilogue=gelu"), "epilogue", "add, bias and relu"},
      {Ok("epilogue="), "epilogue", "add, bias and relu"},
      {Ok("i8x4"), "i8x4", "unknown token"},
      {Ok("nchw_vect_c"), "nchw_vect_c", "unknown token"},
      {Ok("f16\x01"), "text", "control characters"},
      {Ok("f16\xFF"), "text", "valid UTF-8"},
      {Ok("\xED\xA0\x80"), "text", "valid UTF-8"},
      {Ok("\xC0\x80"), "text", "valid UTF-8"},
      {std::string(5000, 'f'), "text", "at most 4096 bytes"},
      {"fwd", "x_dims", "3 to 5 entries"},
      {"fwd,x=8x16x9x9", "w_dims", "as many entries as x_dims"},
      {"fwd,w=8x16x9x9", "x_dims", "3 to 5 entries"},
      {"fwd,x=8x16,w=8x16", "x_dims", "3 to 5 entries"},
      {"fwd,x=1x1x1x1x1x1,w=1x1x1x1x1x1", "x_dims", "3 to 5 entries"},
      {"fwd,x=8x16x9x9,w=8x16x3", "w_dims", "as many entries"},
      {"fwd,x=0x16x9x9,w=32x16x3x3", "x_dims[0]", "from 1 to 2^31-1"},
      {"fwd,x=8x16x-9x9,w=32x16x3x3", "x_dims[2]", "is -9"},
      {"fwd,x=8x16x9x9,w=32x16x0x3", "w_dims[2]", "from 1 to 2^31-1"},
      {"fwd,x=2147483648x16x9x9,w=32x16x3x3", "x_dims[0]", "from 1 to 2^31-1"},
      {"fwd,x=2147483647x2147483647x9x9,w=32x2147483647x3x3", "x_dims", "2^48 elements"},
      {"fwd,x=1x2147483647x1x1,w=2147483647x2147483647x1x1", "w_dims", "2^48 elements"},
      {"fwd,x=2147483647x1x9x9,w=2147483647x1x1x1", "x_dims", "output must hold at most 2^48"},
      {Ok("groups=0"), "groups", "must be at least 1, is 0"},
      {Ok("groups=-4"), "groups", "from 1 to 2^31-1"},
      {Ok("groups=3"), "groups", "must divide the 16 channels"},
      {Ok("groups=2"), "w_dims[1]", "must be C/groups = 16/2 = 8"},
      {"fwd,x=8x16x9x9,w=6x4x3x3,groups=4", "groups", "must divide the 6 filters"},
      {Ok("pad=-1"), "pad_low[0]", "from 0 to 2^31-1"},
      {Ok("pad=0:-1"), "pad_high[0]", "from 0 to 2^31-1"},
      {Ok("pad=1x1x1"), "pad_low", "1 entry or one for each of the 2"},
      {Ok("pad=2147483648"), "pad_low[0]", "from 0 to 2^31-1"},
      {Ok("stride=0"), "strides[0]", "from 1 to 2^31-1"},
      {Ok("stride=1x1x1"), "strides", "1 entry or one"},
      {Ok("dilation=1x0"), "dilations[1]", "from 1 to 2^31-1"},
      {Ok("dilation=5"), "x_dims[2]", "output vanishes"},
      {Ok("dilation=2147483647"), "x_dims[2]", "output vanishes"},
      {"fwd,x=1x1x2,w=1x1x3", "x_dims[2]", "output vanishes"},
      {Ok("pad=2147483647,stride=1"), "x_dims[2]", "output must be at most 2^31-1"},
      {Ok("i32"), "data_type", "must be f64, f32"},
      {Ok("f32,out=f16"), "output_type", "must be f32 for f32"},
      {Ok("f64,acc=f32"), "compute_type", "must be f64 for f64"},
      {Ok("bf16,acc=bf16"), "compute_type", "must be f32 for bf16"},
      {Ok("i8,out=f16"), "output_type", "must be i32 or i8 or f32"},
      {Ok("e4m3,out=i8"), "output_type", "for e4m3"},
      {"bwd_data,x=8x16x9x9,w=32x16x3x3,i8", "data_type", "forward only"},
      {"bwd_filter,x=8x16x9x9,w=32x16x3x3,i8,nhwc", "data_type", "forward only"},
      {Ok("mid=f32"), "intermediate_type", "left out without an epilogue"},
      {Ok("epilogue=bias,mid=f64"), "intermediate_type", "must be f32"},
      {Ok("f64,epilogue=bias,mid=f32"), "intermediate_type", "must be f64"},
      {Ok("epilogue=relu"), "epilogue", "bias, bias+relu or add+bias+relu"},
      {Ok("epilogue=relu+bias"), "epilogue", "bias, bias+relu or add+bias+relu"},
      {Ok("epilogue=bias+bias+relu"), "epilogue", "bias, bias+relu or add+bias+relu"},
      {"bwd_data,x=8x16x9x9,w=32x16x3x3,epilogue=bias", "epilogue", "forward only"},
      {Ok("align=0"), "align", "must be at least 1, is 0"},
      {Ok("align=4294967296"), "align", "is out of range: 4294967296"},
      {Ok("align=24"), "alignment_bytes", "power of two"},
      {Ok("align=512"), "alignment_bytes", "power of two"},
      {Ok("align=-16"), "alignment_bytes", "power of two"},
      {Ok("sms=-1"), "sm_count_target", "from 0 to 1024"},
      {Ok("sms=1025"), "sm_count_target", "from 0 to 1024"},
      {strided + "xstrides=60x20x5x1", "w_strides", "one entry for each of the 4"},
      {strided + "nchw,xstrides=60x20x5x1,wstrides=3x1x1x1,ystrides=40x20x5x1", "layout",
       "must be left out with strides"},
      {strided + "xstrides=60x20x5,wstrides=3x1x1x1,ystrides=40x20x5x1", "x_strides",
       "one entry for each of the 4"},
      {strided + "xstrides=60x20x5x0,wstrides=3x1x1x1,ystrides=40x20x5x1", "x_strides[3]",
       "from 1 to 2^48"},
      {strided + "xstrides=60x20x4x1,wstrides=3x1x1x1,ystrides=40x20x5x1", "x_strides",
       "must not overlap"},
      {strided + "xstrides=60x20x5x1,wstrides=1x1x1x1,ystrides=40x20x5x1", "w_strides",
       "must not overlap"},
      {strided + "xstrides=60x20x5x1,wstrides=3x1x1x1,ystrides=39x20x5x1", "y_strides",
       "must not overlap"},
      {strided + "xstrides=281474976710656x20x5x1,wstrides=3x1x1x1,ystrides=40x20x5x1", "x_strides",
       "span at most 2^48"},
  };
}

TEST(MalformedProblemTest, EveryInputIsRefusedByFieldAndRule) {
  ASSERT_GE(Inputs().size(), 60u);
  for (const Malformed& input : Inputs()) {
    std::vector<Violation> violations;
    EXPECT_FALSE(ConvProblem::Parse(input.text, &violations)) << input.text;
    bool found = false;
    for (const Violation& violation : violations) {
      found |= violation.field == input.field && absl::StrContains(violation.rule, input.rule);
    }
    EXPECT_TRUE(found) << input.text << "\n  gave: " << ToString(violations)
                       << "\n  expected: " << input.field << ": " << input.rule;
  }
}

TEST(MalformedProblemTest, EveryBrokenRuleIsReportedAtOnce) {
  v1::ConvProblem given;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "x_dims: [0, 16, 9, 9] w_dims: [32, 16, 3, -3] pad_low: -1 strides: [1, 0] "
      "dilations: [1, 1, 1] data_type: DATA_TYPE_I32 epilogue: EPILOGUE_OP_RELU "
      "alignment_bytes: 3 sm_count_target: -1",
      &given));
  std::vector<Violation> violations;
  EXPECT_FALSE(ConvProblem::Create(given, &violations));
  std::vector<std::string> fields;
  for (const Violation& violation : violations) fields.push_back(violation.field);
  for (const char* field :
       {"operation", "x_dims[0]", "w_dims[3]", "pad_low[0]", "strides[1]", "dilations", "data_type",
        "epilogue", "alignment_bytes", "sm_count_target"}) {
    EXPECT_THAT(fields, testing::Contains(field));
  }
}

TEST(MalformedProblemTest, TheStatusNamesEveryViolation) {
  const absl::Status status = ConvProblem::Parse(Ok("groups=-1,align=3")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      status.message(),
      "alignment_bytes: must be a power of two from 1 to 256, is 3; groups: must be from 1 to "
      "2^31-1, is -1");
}

TEST(MalformedProblemTest, AListOfAMillionEntriesGivesOneViolation) {
  v1::ConvProblem given;
  given.set_operation(v1::OPERATION_FWD);
  given.mutable_x_dims()->Resize(1000000, -1);
  given.mutable_w_dims()->Resize(4, 1);
  std::vector<Violation> violations;
  EXPECT_FALSE(ConvProblem::Create(given, &violations));
  EXPECT_EQ(violations.size(), 1u) << violations.size();
}

}  // namespace
}  // namespace convtune
