#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "db/bundle/bundle_codec.h"
#include "server/rpc/messages/proto_converter.h"
#include "server/rpc/messages/request_validator.h"
#include "tests/unit/db/valid_tunings.h"

namespace convtune::rpc::messages {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

v1::ApplyTuningsRequest Request(const Tuning& tuning) {
  v1::ApplyTuningsRequest request;
  *request.add_environments() = db::bundle::ToBundleEnvironment(1, db::SampleEnvironment(), {});
  *request.add_tunings() = db::bundle::ToBundleTuning(tuning, 1, false);
  return request;
}

TEST(FleetMessagesTest, AppliedTuningsAreTheFleetsWhateverTheirTime) {
  Tuning tuning = db::ValidSampleTuning(1);
  tuning.tune_time = absl::Now() + absl::Hours(48);  // this node's clock is behind
  std::vector<Violation> violations;
  const auto args = Validate(Request(tuning), &violations);
  ASSERT_TRUE(args.has_value());
  ASSERT_THAT(args->records, SizeIs(1));
  EXPECT_THAT(args->refused, IsEmpty());
  EXPECT_EQ(args->records[0].tuning.origin, Origin::kFleet);
  EXPECT_EQ(args->records[0].tuning.key, tuning.key);
  EXPECT_EQ(args->records[0].environment, db::SampleEnvironment());
}

TEST(FleetMessagesTest, ARowThatBreaksARuleIsNamedAndTheOthersAreTaken) {
  v1::ApplyTuningsRequest request = Request(db::ValidSampleTuning(1));
  *request.add_tunings() = request.tunings(0);
  request.mutable_tunings(0)->set_problem_text("fwd,x=1");
  *request.add_tunings() = request.tunings(1);
  request.mutable_tunings(2)->set_environment_number(2);
  std::vector<Violation> violations;
  const auto args = Validate(request, &violations);
  ASSERT_TRUE(args.has_value());
  EXPECT_THAT(args->records, SizeIs(1));
  EXPECT_THAT(args->refused, ElementsAre(HasSubstr("tunings[0].problem_text"),
                                         HasSubstr("tunings[2].environment_number")));
}

}  // namespace
}  // namespace convtune::rpc::messages
