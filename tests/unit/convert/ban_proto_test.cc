#include "proto/convert/ban_proto.h"

#include <gtest/gtest.h>

namespace convtune {
namespace {

TEST(BanProto, ABanIsReadAsItWasWritten) {
  Ban ban;
  ban.fleet_ban = 7;
  ban.candidate = CandidatePattern::Parse("eng47,k2=*").value();
  ban.cudnn = CudnnRange::Parse(">=9.12,<9.20").value();
  ban.gpu = "*h200";
  ban.operation = Operation::kBwdData;
  ban.data_type = DataType::kBF16;
  ban.layout = TensorLayout::kNhwc;
  ban.author = "ann";
  ban.reason = "wrong results";
  ban.expire_time = absl::FromUnixSeconds(2'000'000'000);
  std::vector<Violation> violations;
  EXPECT_EQ(BanFromProto(ToProto(ban), "ban", &violations), ban);
  EXPECT_TRUE(violations.empty()) << ToString(violations);
  // Nobody chooses these two.
  ban.number = 3;
  ban.create_time = absl::FromUnixSeconds(9);
  EXPECT_EQ(ToProto(ban).name(), "bans/3");
  const Ban read = BanFromProto(ToProto(ban), "ban", &violations);
  EXPECT_EQ(read.number, 0);
  EXPECT_EQ(read.create_time, absl::UnixEpoch());
}

TEST(BanProto, EveryRuleThatIsBrokenIsNamedWithItsPath) {
  v1::Ban proto;
  proto.set_candidate("x");
  proto.set_cudnn("new");
  proto.set_gpu("a;b");
  proto.set_fleet_ban(-1);
  proto.set_author("a\nb");
  std::vector<Violation> violations;
  BanFromProto(proto, "rules[2]", &violations);
  std::vector<std::string> fields;
  for (const Violation& violation : violations) fields.push_back(violation.field);
  EXPECT_EQ(fields,
            (std::vector<std::string>{"rules[2].candidate", "rules[2].cudnn", "rules[2].gpu",
                                      "rules[2].author", "rules[2].reason", "rules[2].fleet_ban"}));
}

// Lengths are in characters, and what reads a pattern counts bytes.
TEST(BanProto, WhatIsTooLongInBytesAloneIsNoPatternForEverything) {
  std::string text;
  for (int i = 0; i < 600; ++i) text += "\xC3\xA9";
  v1::Ban proto;
  proto.set_candidate(text);
  proto.set_cudnn(text);
  proto.set_gpu(text);
  proto.set_author("ann");
  proto.set_reason("wrong results");
  std::vector<Violation> violations;
  BanFromProto(proto, "ban", &violations);
  std::vector<std::string> fields;
  for (const Violation& violation : violations) fields.push_back(violation.field);
  EXPECT_EQ(fields, (std::vector<std::string>{"ban.candidate", "ban.cudnn", "ban.gpu"}));
}

}  // namespace
}  // namespace convtune
