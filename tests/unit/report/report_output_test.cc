#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/report/report.h"
#include "tests/unit/report/sample_rows.h"

namespace convtune::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ReportJson, TimesThatWereNotTakenAreNull) {
  ReportData data;
  AddSample(&data, {.times = {{"graph:eng1", 0}, {"graph:eng2", 0}}, .stock = 1});
  const std::string json = ReportJson(data, MakeReport(SampleOptions(), &data));
  EXPECT_THAT(json, HasSubstr(R"("heuristic":1)"));
  EXPECT_THAT(json, HasSubstr(R"("gain":null)"));
  EXPECT_THAT(json, HasSubstr(R"([[0,0,0,10,0,1,null,null,null,null,0,2,8640000,2,false]])"));
}

TEST(ReportJson, NumbersAndTextsStandInTheirPlaces) {
  ReportData data;
  AddSample(&data, {.times = {{"graph:eng1", 10}, {"graph:eng2", 12.5}}, .stock = 1});
  const std::string json = ReportJson(data, MakeReport(SampleOptions(), &data));
  EXPECT_THAT(json, HasSubstr(R"("gain":1.25,)"));
  EXPECT_THAT(json, HasSubstr(R"([[0,0,1,1,40,0,1,10,12.5,2,0,0,0]])"));
  EXPECT_THAT(json, HasSubstr(R"("generated":"1970-04-21T00:00:00Z")"));
}

TEST(ReportJson, AnUpgradeCheckIsKeptWithItsProblems) {
  ReportData data;
  const std::string problem =
      "fwd,x=1x8x8x8,w=8x8x3x3,pad=1x1,stride=1x1,dilation=1x1,groups=1,nhwc,f16,acc=f32";
  data.AddProblem(problem);
  const std::string checks = R"([{"profile":"nvidia-h200","problems":[{"problem":")" + problem +
                             R"(","count":3,"winnerLost":true}]}])";
  data.SetUpgradeChecks(checks);
  const std::string json = ReportJson(data, MakeReport(SampleOptions(), &data));
  EXPECT_THAT(json, HasSubstr(R"("upgrade_checks":)" + checks));
  EXPECT_THAT(json, HasSubstr(R"("problems":[{"text":")" + problem));
  EXPECT_THAT(json, HasSubstr(R"("problems":0)"));  // it counts for no other number
}

TEST(ReportJson, CannotEndTheScriptThatItStandsIn) {
  ReportData data;
  AddSample(&data, {.node = "</script><script>alert(1)</script>\"\n"});
  const Report report = MakeReport(SampleOptions(), &data);
  EXPECT_THAT(ReportJson(data, report), Not(HasSubstr("</")));
  EXPECT_THAT(ReportJson(data, report), HasSubstr(R"(\u003c/script>)"));
}

TEST(ReportHtml, LoadsNothing) {
  ReportData data;
  const std::string page = ReportHtml(data, MakeReport(SampleOptions(), &data));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page, HasSubstr(R"("headline":{"rows":0)"));
  for (const char* out : {"http:", "https:", "@import", "url(", "fetch(", " src=", "/*DATA*/",
                          "/*STYLE*/", "/*SCRIPT*/"}) {
    EXPECT_THAT(page, Not(HasSubstr(out))) << out;
  }
}

}  // namespace
}  // namespace convtune::report
