#include "proto/base/clock.h"

#include <gtest/gtest.h>

namespace convtune {
namespace {

TEST(DurationTest, ReadsDaysBesideWhatAbseilReads) {
  EXPECT_EQ(ParseDuration("500ms"), absl::Milliseconds(500));
  EXPECT_EQ(ParseDuration("1h30m"), absl::Minutes(90));
  EXPECT_EQ(ParseDuration("30d"), absl::Hours(720));
  EXPECT_EQ(ParseDuration("1.5d"), absl::Hours(36));
  EXPECT_EQ(ParseDuration("1d12h"), absl::Hours(36));
  EXPECT_EQ(ParseDuration("0"), absl::ZeroDuration());
  EXPECT_EQ(ParseDuration("-1h"), -absl::Hours(1));
}

TEST(DurationTest, RefusesWhatIsNoTime) {
  for (const char* text : {"", "d", ".d", "30", "30 d", "1h2d", "1d-12h", "1d2d", "2w", "1dx"}) {
    EXPECT_FALSE(ParseDuration(text)) << text;
  }
}

}  // namespace
}  // namespace convtune
