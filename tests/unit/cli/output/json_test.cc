#include "client/cli/output/fields.h"

#include <gtest/gtest.h>

#include "convtune/v1/tuning_service.pb.h"

namespace convtune::cli::output {
namespace {

TEST(JsonStringTest, EscapesAndReplacesWhatIsNoUtf8) {
  EXPECT_EQ(JsonString("a\"b\\c\n\x01").text, R"("a\"b\\c\n\u0001")");
  EXPECT_EQ(JsonString("\xC3\xA4").text, "\"\xC3\xA4\"");
  EXPECT_EQ(JsonString("\xff x \xC3").text, "\"\xEF\xBF\xBD x \xEF\xBF\xBD\"");
  EXPECT_EQ(JsonString("\xED\xA0\x80").text, "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

TEST(JsonMergedTest, HasTheMembersOfBoth) {
  v1::Miss miss;
  EXPECT_EQ(JsonMerged(Json{R"({"row":"a"})"}, JsonMessage(miss)).text, R"({"row":"a"})");
  miss.set_message("none");
  EXPECT_EQ(JsonMerged(Json{R"({"row":"a"})"}, JsonMessage(miss)).text,
            R"({"row":"a","message":"none"})");
  EXPECT_EQ(JsonMerged(Json{"{}"}, JsonMessage(miss)).text, R"({"message":"none"})");
}

}  // namespace
}  // namespace convtune::cli::output
