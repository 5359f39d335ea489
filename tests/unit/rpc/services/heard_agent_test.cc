#include "server/rpc/services/heard_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace convtune::rpc::services {
namespace {

using ::testing::HasSubstr;

class HeardAgentTest : public ::testing::Test {
 protected:
  void Pass(absl::Duration time) { now_ = now_ + time; }

  SteadyTime now_ = SteadyTime::Now();
  HeardAgent agent_{now_};
};

TEST_F(HeardAgentTest, AnotherNodesAgentIsRefusedUntilTheFirstIsGone) {
  ASSERT_TRUE(agent_.Begin("n1", now_).ok());
  Pass(HeardAgent::kGone - absl::Seconds(1));
  const absl::Status refused = agent_.Begin("n2", now_);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("works with the agent of the node n1 and refuses that of n2"));
  EXPECT_EQ(agent_.Refused(now_), "n2");
  EXPECT_TRUE(agent_.Begin("n1", now_).ok());
  // A refused call is no sign of life of the first, and none of the second is one for ever.
  Pass(HeardAgent::kGone);
  EXPECT_EQ(agent_.Refused(now_), "");
  EXPECT_EQ(agent_.Silence(now_), HeardAgent::kGone);
  EXPECT_TRUE(agent_.Begin("n2", now_).ok());
  EXPECT_FALSE(agent_.Begin("n1", now_).ok());
}

TEST_F(HeardAgentTest, ALongTurnKeepsOthersOut) {
  ASSERT_TRUE(agent_.Begin("n1", now_).ok());
  for (int page = 0; page < 5; ++page) {
    Pass(HeardAgent::kGone / 2);
    agent_.Hear(now_);
  }
  EXPECT_FALSE(agent_.Begin("n2", now_).ok());
}

TEST_F(HeardAgentTest, AnAgentThatStartsAgainIsTakenAndSoIsOneThatDoesNotSayItsNode) {
  ASSERT_TRUE(agent_.Begin("n1", now_).ok());
  EXPECT_TRUE(agent_.Begin("n1", now_).ok());
  EXPECT_TRUE(agent_.Begin("", now_).ok());
  EXPECT_TRUE(agent_.Begin("n2", now_).ok());
  EXPECT_EQ(agent_.Refused(now_), "");
}

}  // namespace
}  // namespace convtune::rpc::services
