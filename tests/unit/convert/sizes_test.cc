#include "proto/convert/sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/model/byte_size.h"
#include "tests/unit/rule_cases.h"

namespace convtune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SizesTest, StandForTheTextsOfTheTable) {
  for (const std::vector<std::string>& row : RuleCases("sizes.txt")) {
    const auto texts = ExpandSizes(row[0]);
    const std::string message(texts.status().message());
    const std::string found = texts.ok()
                                  ? absl::StrJoin(*texts, " ; ")
                                  : absl::StrCat("refused: ", message.substr(0, message.find(':')));
    EXPECT_EQ(found, row[1]) << row[0] << ": " << message;
  }
}

TEST(SizesTest, AListOfSizesAndRanges) {
  EXPECT_THAT(ParseSizes("1,8,16..64/24").value(), ElementsAre(1, 8, 16, 40, 64));
  EXPECT_THAT(std::string(ParseSizes("512..224").status().message()),
              HasSubstr("must go up in steps from 1, is \"512..224\""));
}

TEST(SizesTest, WhatATextMayStandForHasABound) {
  std::string many = "x=[1]";
  for (int i = 0; i < 32; ++i) many += "x[=]";
  EXPECT_THAT(std::string(ExpandSizes(many).status().message()), HasSubstr("at most 32 brackets"));
  EXPECT_THAT(std::string(ExpandSizes("x=[1]" + std::string(5000, ' ')).status().message()),
              HasSubstr("text: must be at most 4096 bytes"));
  EXPECT_THAT(std::string(ExpandSizes("x=[1..200]x[1..200]").status().message()),
              HasSubstr("x: must stand for at most 10000 problems"));
}

TEST(ByteSizeTest, IsAWholeNumberAndAUnit) {
  for (const auto& [text, bytes] :
       std::vector<std::pair<const char*, int64_t>>{{"0", 0},
                                                    {"0B", 0},
                                                    {"131B", 131},
                                                    {"3KiB", 3072},
                                                    {"256MiB", int64_t{256} << 20},
                                                    {"2GiB", int64_t{2} << 30},
                                                    {"5KB", 5000},
                                                    {"5MB", 5'000'000},
                                                    {"5GB", 5'000'000'000}}) {
    EXPECT_EQ(ParseByteSize(text), bytes) << text;
  }
  for (const char* text : {"", "256", "-1B", "+1B", " 1B", "1 MiB", "1mib", "1.5GiB", "x", "MiB",
                           "9223372036854775807KiB", "99999999999999999999B"}) {
    EXPECT_EQ(ParseByteSize(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace convtune
