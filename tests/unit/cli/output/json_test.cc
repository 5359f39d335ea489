#include "client/cli/output/json.h"

#include <gtest/gtest.h>

#include <limits>

#include "convtune/v1/tuning_service.pb.h"

namespace convtune::cli::output {
namespace {

TEST(JsonStringTest, EscapesAndReplacesWhatIsNoUtf8) {
  EXPECT_EQ(JsonString("a\"b\\c\n\x01"), R"("a\"b\\c\n\u0001")");
  EXPECT_EQ(JsonString("\xC3\xA4"), "\"\xC3\xA4\"");
  EXPECT_EQ(JsonString("\xff x \xC3"), "\"\xEF\xBF\xBD x \xEF\xBF\xBD\"");
  EXPECT_EQ(JsonString("\xED\xA0\x80"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

TEST(JsonObjectTest, KeepsTheOrderOfTheCallsAndTheTypesOfTheValues) {
  v1::Miss miss;
  miss.set_message("none");
  JsonObject object;
  object.Add("text", "a").Add("yes", true).Add("count", size_t{3}).Add("us", 12.5);
  object.Add("infinite", std::numeric_limits<double>::infinity())
      .Add("absent", std::optional<double>());
  object.Add("texts", std::vector<std::string>{"b", "c"}).AddRaw("raw", "[]").AddMembers(miss);
  EXPECT_EQ(object.Take(),
            R"({"text":"a","yes":true,"count":3,"us":12.5,"infinite":null,"absent":null,)"
            R"("texts":["b","c"],"raw":[],"message":"none"})");
}

}  // namespace
}  // namespace convtune::cli::output
