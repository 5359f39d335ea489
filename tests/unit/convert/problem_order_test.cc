#include "proto/convert/problem_list.h"

#include <gtest/gtest.h>

#include <limits>

namespace convtune {
namespace {

ProblemRow Row(const std::string& text, int64_t count, const std::string& source) {
  return {ConvProblem::Parse(text).value(), count, source};
}

TEST(ProblemOrderTest, FlopsAreTwoForEachMultiplication) {
  const auto problem = ConvProblem::Parse("fwd,x=2x4x5x5,w=6x2x3x3,pad=1,groups=2").value();
  EXPECT_EQ(EstimatedFlops(problem), 2.0 * (2 * 6 * 5 * 5) * (2 * 3 * 3));
}

TEST(ProblemOrderTest, CountTimesFlopsDecides) {
  const std::vector<ProblemRow> ordered = MostWorkFirst(
      {Row("fwd,x=1x8x8x8,w=8x8x1x1", 1, "a"), Row("fwd,x=2x8x8x8,w=8x8x1x1", 1, "b"),
       Row("fwd,x=1x8x8x8,w=8x8x3x3,pad=1", 1, "c"), Row("fwd,x=4x8x8x8,w=8x8x1x1", 3, "d")});
  std::string sources;
  for (const ProblemRow& row : ordered) sources += row.source;
  EXPECT_EQ(sources, "dcba");
}

TEST(ProblemOrderTest, DoublesAreOneWithTheirCountsTogether) {
  const std::vector<ProblemRow> ordered =
      MostWorkFirst({Row("fwd,x=1x8x8x8,w=8x8x1x1", 2, "a"), Row("fwd,x=1x8x8x8,w=8x8x3x3", 1, "b"),
                     Row("fwd,x=1x8x8x8,w=8x8x1x1,pad=0", 40, "c")});
  ASSERT_EQ(ordered.size(), 2U);
  EXPECT_EQ(ordered[0].source, "a");
  EXPECT_EQ(ordered[0].count, 42);
}

TEST(ProblemOrderTest, DistinctRowsKeepTheOrderOfTheList) {
  const std::vector<ProblemRow> rows =
      Distinct({Row("fwd,x=1x8x8x8,w=8x8x1x1", 2, "a"), Row("fwd,x=1x8x8x8,w=8x8x3x3", 1, "b"),
                Row("fwd,x=1x8x8x8,w=8x8x1x1", 3, "c")});
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].source, "a");
  EXPECT_EQ(rows[0].count, 5);
  EXPECT_EQ(rows[1].source, "b");
}

TEST(ProblemOrderTest, CountsDoNotOverflow) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(MostWorkFirst({Row("fwd,x=1x8x8x8,w=8x8x1x1", kMost, "a"),
                           Row("fwd,x=1x8x8x8,w=8x8x1x1", kMost, "b")})[0]
                .count,
            kMost);
}

TEST(ProblemOrderTest, EqualsKeepTheOrderOfTheList) {
  const std::vector<ProblemRow> ordered = MostWorkFirst(
      {Row("bwd_data,x=1x8x8x8,w=8x8x1x1", 1, "a"), Row("fwd,x=1x8x8x8,w=8x8x1x1", 1, "b")});
  EXPECT_EQ(ordered[0].source, "a");
}

}  // namespace
}  // namespace convtune
