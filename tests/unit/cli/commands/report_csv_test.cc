#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "client/cli/commands/report.h"
#include "tests/unit/report/sample_rows.h"

namespace convtune::cli::commands {
namespace {

TEST(ReportCsvTest, HasALineForEachRow) {
  report::ReportData data;
  report::AddSample(
      &data, {.times = {{"graph:eng1,k2=3", 10}, {"graph:eng2", 0}}, .stock = 1, .node = "a,b"});
  std::ostringstream out;
  WriteReportCsv(data, out);
  const std::string csv = out.str();
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 2);
  EXPECT_EQ(csv.rfind("problem,environment,gpu_model,cudnn,node,gpu_uuid,driver,cuda,evidence,", 0),
            0U);
  EXPECT_THAT(csv,
              testing::HasSubstr("\"a,b\",\"GPU-a,b\",580.65,13.0,measured,\"graph:eng1,k2=3\",10,"
                                 "graph:eng2,,1700,,0,2,1970-04-11T00:00:00Z,2\n"));
}

}  // namespace
}  // namespace convtune::cli::commands
