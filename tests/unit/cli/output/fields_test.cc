#include "client/cli/output/fields.h"

#include <gtest/gtest.h>

#include <limits>

#include "convtune/v1/tuning_service.pb.h"

namespace convtune::cli::output {
namespace {

struct Layer {
  std::string name;
  int64_t bytes = 0;
  double us = 0;
};

Fields LayerFields(const Layer& layer) {
  return {{"name", "NAME", Value(layer.name).Shown("the " + layer.name)},
          {"workspaceBytes", "WORKSPACE", Bytes(layer.bytes)},
          {"timeUs", "TIME", Micros(layer.us)},
          {"from_list", "", true, Only::kCsv},
          {"inModel", "", layer.name == "a", Only::kJson},
          {"", "LAST", "only shown"}};
}

const std::vector<Layer> kLayers = {{"a", 1536, 12.25}, {"b,c", 0, 0}};

TEST(FieldsTest, OneListMakesATable) {
  EXPECT_EQ(TableOf(kLayers, LayerFields).Render(0, false),
            "NAME     WORKSPACE     TIME  LAST\n"
            "the a      1.5 KiB  12.2 us  only shown\n"
            "the b,c          0        -  only shown\n");
}

TEST(FieldsTest, AndLinesOfCsv) {
  EXPECT_EQ(CsvHeading(LayerFields(Layer())), "name,workspace_bytes,time_us,from_list\n");
  EXPECT_EQ(CsvRow(LayerFields(kLayers[0])), "a,1536,12.25,true\n");
  EXPECT_EQ(CsvRow(LayerFields(kLayers[1])), "\"b,c\",0,,true\n");
}

TEST(FieldsTest, AndJson) {
  EXPECT_EQ(JsonRows(kLayers, LayerFields).text,
            R"([{"name":"a","workspaceBytes":1536,"timeUs":12.25,"inModel":true},)"
            R"({"name":"b,c","workspaceBytes":0,"timeUs":null,"inModel":false}])");
}

TEST(JsonRowTest, KeepsTheOrderAndTheTypesOfTheValues) {
  EXPECT_EQ(JsonRow({{"text", "a\"b"},
                     {"yes", true},
                     {"count", size_t{3}},
                     {"us", 12.5},
                     {"infinite", std::numeric_limits<double>::infinity()},
                     {"absent", std::optional<double>()},
                     {"texts", std::vector<std::string>{"b", "c"}},
                     {"rows", std::vector<Json>{Json{"{}"}}},
                     {"inner", JsonRow({})}})
                .text,
            R"({"text":"a\"b","yes":true,"count":3,"us":12.5,"infinite":null,"absent":null,)"
            R"("texts":["b","c"],"rows":[{}],"inner":{}})");
}

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
