#include "client/cli/output/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace convtune::cli::output {
namespace {

TEST(RenderProgressTest, ShowsProblemsAndCandidates) {
  EXPECT_EQ(RenderProgress({.done = 3,
                            .total = 12,
                            .current = "fwd,x=1",
                            .candidates_done = 17,
                            .candidates_total = 41},
                           80),
            "[#####---------------] 3/12  fwd,x=1  17/41 candidates");
}

TEST(RenderProgressTest, CutsTheProblemToFit) {
  const std::string line = RenderProgress({.done = 0,
                                           .total = 1,
                                           .current = std::string(200, 'x'),
                                           .candidates_done = 1,
                                           .candidates_total = 2},
                                          60);
  EXPECT_EQ(line.size(), 60U);
  EXPECT_THAT(line, testing::HasSubstr("xxx...  1/2 candidates"));
}

TEST(RenderProgressTest, NoCandidatesBeforeTheyAreListed) {
  EXPECT_EQ(RenderProgress({.done = 1, .total = 1, .current = "fwd"}, 80),
            "[####################] 1/1  fwd");
}

TEST(RenderProgressTest, AnyWidthAndAnyCountsAreSafe) {
  for (int columns = 0; columns < 100; ++columns) {
    const std::string line = RenderProgress({.done = 5,
                                             .total = 3,
                                             .current = "fwd,x=16x64",
                                             .candidates_done = 9,
                                             .candidates_total = 1},
                                            columns);
    EXPECT_LE(line.size(), static_cast<size_t>(columns));
  }
  EXPECT_EQ(RenderProgress({}, 80), "[--------------------] 0/0");
}

}  // namespace
}  // namespace convtune::cli::output
