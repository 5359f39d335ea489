#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "convtune/v1/problem.pb.h"
#include "proto/model/problem/conv_problem.h"

namespace convtune {
namespace {

using testing::HasSubstr;

v1::ConvProblem Valid() {
  v1::ConvProblem proto;
  proto.set_operation(v1::OPERATION_FWD);
  for (const int64_t d : {8, 16, 9, 9}) proto.add_x_dims(d);
  for (const int64_t d : {32, 16, 3, 3}) proto.add_w_dims(d);
  return proto;
}

// The one thing that is broken in a problem or the spec of one.
Violation Broken(const auto& proto, std::string_view prefix = "") {
  std::vector<Violation> violations;
  EXPECT_FALSE(ConvProblem::Create(proto, &violations, prefix));
  EXPECT_EQ(violations.size(), 1u) << ToString(violations);
  return violations.empty() ? Violation() : violations[0];
}

TEST(ProblemMessageTest, AnUnknownNumberHidesNoOtherViolation) {
  v1::ConvProblem proto = Valid();
  proto.set_data_type(static_cast<v1::DataType>(99));
  proto.add_strides(-1);
  proto.add_strides(1);
  std::vector<Violation> violations;
  EXPECT_FALSE(ConvProblem::Create(proto, &violations));
  std::vector<std::string> fields;
  for (const Violation& violation : violations) fields.push_back(violation.field);
  EXPECT_THAT(fields, testing::ElementsAre("data_type", "strides[0]"));
}

TEST(ProblemMessageTest, ReadsEveryForm) {
  for (const char* text :
       {"fwd,x=8x16x9x9,w=32x16x3x3", "bwd_data,x=8x16x9x9,w=32x8x3x3,groups=2,nhwc,bf16,out=f32",
        "bwd_filter,x=2x4x9,w=4x4x3,pad=1:0,stride=2,dilation=2,f64",
        "fwd,x=1x4x9x9x9,w=8x4x3x3x3,f16,acc=f16,mid=f16,epilogue=add+bias+relu,mode=conv,"
        "align=4,sms=100",
        "fwd,x=8x16x9x9,w=32x16x1x1,i8,nhwc,epilogue=bias", "fwd,x=8x16x9x9,w=32x16x1x1,e4m3,nhwc",
        "fwd,x=2x3x4x5,w=2x3x1x1,xstrides=100x20x5x1,wstrides=3x1x1x1,ystrides=40x20x5x1"}) {
    const ConvProblem problem = *ConvProblem::Parse(text);
    std::vector<Violation> violations;
    const std::optional<ConvProblem> back = ConvProblem::Create(problem.ToProto(), &violations);
    ASSERT_TRUE(back) << text << ": " << ToString(violations);
    EXPECT_EQ(*back, problem) << text;
  }
}

TEST(ProblemMessageTest, LeftOutFieldsHaveTheDefaultsOfTheTextForm) {
  std::vector<Violation> violations;
  EXPECT_EQ(ConvProblem::Create(Valid(), &violations),
            *ConvProblem::Parse("fwd,x=8x16x9x9,w=32x16x3x3"));
}

TEST(ProblemMessageTest, ViolationsCarryThePrefix) {
  v1::ConvProblem proto = Valid();
  proto.add_pad_low(0);
  proto.add_pad_low(-1);
  const Violation violation = Broken(proto, "problems[3].problem");
  EXPECT_EQ(violation.field, "problems[3].problem.pad_low[1]");
  EXPECT_THAT(violation.rule, HasSubstr("from 0 to 2^31-1, is -1"));
}

TEST(ProblemMessageTest, UnknownEnumNumbersAreViolationsAndSaidOnce) {
  const std::pair<const char*, int> unknown[] = {
      {"operation", 9}, {"data_type", 99}, {"output_type", -1}, {"layout", 4}, {"mode", 3}};
  for (const auto& [field, number] : unknown) {
    v1::ConvProblem proto = Valid();
    proto.GetReflection()->SetEnumValue(&proto, proto.GetDescriptor()->FindFieldByName(field),
                                        number);
    const Violation violation = Broken(proto);
    EXPECT_EQ(violation.field, field);
    EXPECT_THAT(violation.rule, HasSubstr("unknown enum number")) << field;
  }
}

TEST(ProblemMessageTest, UnknownNumbersAreNoEpilogue) {
  for (const int number : {0, 7}) {
    v1::ConvProblem proto = Valid();
    proto.add_epilogue(static_cast<v1::EpilogueOp>(number));
    const Violation violation = Broken(proto);
    EXPECT_EQ(violation.field, "epilogue") << number;
    EXPECT_THAT(violation.rule, HasSubstr("must be bias, bias+relu or add+bias+relu"));
    // However many there are.
    for (int i = 0; i < 100000; ++i) proto.add_epilogue(static_cast<v1::EpilogueOp>(number));
    EXPECT_EQ(Broken(proto).field, "epilogue") << number;
  }
}

TEST(ProblemMessageTest, AnUnspecifiedOperationIsRefused) {
  v1::ConvProblem proto = Valid();
  proto.clear_operation();
  const Violation violation = Broken(proto);
  EXPECT_EQ(violation.field, "operation");
  EXPECT_THAT(violation.rule, HasSubstr("required"));
}

TEST(ProblemMessageTest, ASpecIsReadInEitherForm) {
  v1::ProblemSpec by_text;
  by_text.set_text("fwd,x=8x16x9x9,w=32x16x3x3");
  v1::ProblemSpec by_field;
  *by_field.mutable_problem() = Valid();
  std::vector<Violation> violations;
  EXPECT_EQ(ConvProblem::Create(by_text, &violations, "problems[0]"),
            ConvProblem::Create(by_field, &violations, "problems[1]"));
  EXPECT_TRUE(violations.empty());
}

TEST(ProblemMessageTest, AllThatIsWrongWithATextIsUnderText) {
  v1::ProblemSpec spec;
  spec.set_text("fwd,x=8x16x9x9,w=32x16x3x3,groups=-1,align=3");
  std::vector<Violation> violations;
  EXPECT_FALSE(ConvProblem::Create(spec, &violations, "problems[3]"));
  ASSERT_EQ(violations.size(), 2u);
  EXPECT_EQ(violations[0].field, "problems[3].text");
  EXPECT_EQ(violations[1].field, "problems[3].text");
  EXPECT_THAT(ToString(violations), HasSubstr("groups: must be from 1"));
}

TEST(ProblemMessageTest, ASpecWithoutAFormIsRefused) {
  const Violation violation = Broken(v1::ProblemSpec(), "problems[3]");
  EXPECT_EQ(violation.field, "problems[3]");
  EXPECT_THAT(violation.rule, HasSubstr("required"));
}

TEST(ProblemMessageTest, FieldPathsOfASpecNameTheProblem) {
  v1::ProblemSpec spec;
  *spec.mutable_problem() = Valid();
  spec.mutable_problem()->set_x_dims(0, 0);
  EXPECT_EQ(Broken(spec, "problems[3]").field, "problems[3].problem.x_dims[0]");
}

// Random bytes that parse as the message never get past the rules by accident.
TEST(ProblemMessageTest, RandomMessagesAreRefusedWithAReasonOrStable) {
  std::mt19937_64 random(20260117);
  const std::string valid = Valid().SerializeAsString();
  for (int i = 0; i < 10000; ++i) {
    std::string bytes = valid;
    for (int k = 0; k < 3; ++k) bytes[random() % bytes.size()] = static_cast<char>(random());
    v1::ConvProblem proto;
    if (!proto.ParseFromString(bytes)) continue;
    std::vector<Violation> violations;
    const std::optional<ConvProblem> problem = ConvProblem::Create(proto, &violations, "p");
    ASSERT_EQ(problem.has_value(), violations.empty()) << proto.ShortDebugString();
    if (problem) {
      ASSERT_EQ(*ConvProblem::Parse(problem->ToText()), *problem);
    }
  }
}

}  // namespace
}  // namespace convtune
