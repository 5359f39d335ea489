#include "client/fleet/agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace convtune::fleet {
namespace {

using ::testing::HasSubstr;

TEST(RefetchTest, AReleaseThatCannotBeCompletedIsFetchedAgainOnce) {
  Refetch refetch;
  EXPECT_FALSE(refetch.Decide(0));
  EXPECT_TRUE(refetch.Decide(2));
  for (int hour = 0; hour < 4; ++hour) EXPECT_FALSE(refetch.Decide(2)) << hour;
}

TEST(RefetchTest, AProblemThatIsLostLaterIsFetchedAgain) {
  Refetch refetch;
  EXPECT_TRUE(refetch.Decide(1));
  EXPECT_FALSE(refetch.Decide(0));
  EXPECT_TRUE(refetch.Decide(1));
}

TEST(AgentTest, ANodeHasTheNameThatItsDaemonMayHave) {
  Agent::Options options;
  options.daemon.address = *Address::Parse("unix:/nonexistent");
  options.node = std::string(256, 'n');
  EXPECT_TRUE(Agent::Create(options).ok());
  for (const std::string& bad : {std::string(), std::string(257, 'n'), std::string("a\nb")}) {
    options.node = bad;
    const absl::Status refused = Agent::Create(options).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("node: must be 1 to 256 bytes"));
  }
}

}  // namespace
}  // namespace convtune::fleet
