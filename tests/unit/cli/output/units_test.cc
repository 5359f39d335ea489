#include "client/cli/output/units.h"

#include <gtest/gtest.h>

namespace convtune::cli::output {
namespace {

TEST(ParseTimeTest, RefusesZeroAndNegative) {
  EXPECT_EQ(*ParseTime("f", "1m30s"), absl::Seconds(90));
  EXPECT_FALSE(ParseTime("f", "0s").ok());
  EXPECT_FALSE(ParseTime("f", "-1s").ok());
  EXPECT_FALSE(ParseTime("f", "5").ok());
}

TEST(ParseTimeTest, NamesTheLimitsThatThereAre) {
  const auto words = [](absl::Duration least, absl::Duration most) {
    return std::string(ParseTime("f", "1m", least, most).status().message());
  };
  EXPECT_EQ(words(absl::Hours(1), absl::InfiniteDuration()), "f: must be at least 1h, is '1m'");
  EXPECT_EQ(words(absl::ZeroDuration(), absl::Seconds(1)), "f: must be at most 1s, is '1m'");
  EXPECT_EQ(words(absl::Hours(1), absl::Hours(2)), "f: must be from 1h to 2h, is '1m'");
}

TEST(ParsePermilleTest, ReadsPercentAndPartsOfOne) {
  EXPECT_EQ(*ParsePermille("f", "5%"), 50);
  EXPECT_EQ(*ParsePermille("f", "0.05"), 50);
  EXPECT_EQ(*ParsePermille("f", "0.1%"), 1);
  EXPECT_EQ(*ParsePermille("f", "99.9%"), 999);
  for (const char* text :
       {"", "%", "0", "1", "0.01%", "99.95%", "100%", "-5%", "nan", "inf", "5 %x"}) {
    const auto permille = ParsePermille("--canary", text);
    ASSERT_FALSE(permille.ok()) << text;
    EXPECT_EQ(std::string(permille.status().message()).rfind("--canary: ", 0), 0U) << text;
  }
}

TEST(FormatTest, BytesAreShort) {
  EXPECT_EQ(FormatBytes(0), "0");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(64 << 20), "64 MiB");
  EXPECT_EQ(FormatBytes((1 << 20) - 1), "1 MiB");
}

TEST(FormatTest, TimesChangeTheirUnitAtAMillisecond) {
  EXPECT_EQ(FormatMicroseconds(0), "-");
  EXPECT_EQ(FormatMicroseconds(12.34), "12.3 us");
  EXPECT_EQ(FormatMicroseconds(512.3), "512 us");
  EXPECT_EQ(FormatMicroseconds(999.9), "1.00 ms");
  EXPECT_EQ(FormatMicroseconds(12346), "12.35 ms");
}

TEST(UnitsTest, OneIsNotSeveral) {
  EXPECT_EQ(Counted(1, "tuning"), "1 tuning");
  EXPECT_EQ(Counted(0, "tuning"), "0 tunings");
  EXPECT_EQ(Counted(1, "ban holds", "bans hold"), "1 ban holds");
  EXPECT_EQ(Counted(2, "ban holds", "bans hold"), "2 bans hold");
}

TEST(UnitsTest, AChangeOfBytesIsSeenWhereBothRoundAlike) {
  EXPECT_EQ(FormatBytesChange(0, 131), "0 > 131 B");
  EXPECT_EQ(FormatBytesChange(4816912, 4817043), "4.6 MiB +131 B");
  EXPECT_EQ(FormatBytesChange(4817043, 4816912), "4.6 MiB -131 B");
  EXPECT_EQ(FormatBytesChange(4816912, 4816912), "4.6 MiB");
}

}  // namespace
}  // namespace convtune::cli::output
