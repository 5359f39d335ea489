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

std::vector<std::string> Fields(const std::vector<Violation>& violations) {
  std::vector<std::string> fields;
  for (const Violation& violation : violations) fields.push_back(violation.field);
  return fields;
}

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

TEST(FleetMessagesTest, EveryBadFieldOfFollowReleaseIsNamed) {
  v1::FollowReleaseRequest request;
  request.set_release(-1);
  request.set_author("a\nb");
  std::vector<Violation> violations;
  EXPECT_FALSE(Validate(request, &violations).has_value());
  EXPECT_THAT(Fields(violations), ElementsAre("release", "author", "reason"));
}

TEST(FleetMessagesTest, AnAgentHasTheNameOfANodeOrNone) {
  std::vector<Violation> violations;
  v1::GetFleetStateRequest request;
  EXPECT_TRUE(Validate(request, &violations).has_value());
  request.set_agent("node 7");
  EXPECT_TRUE(Validate(request, &violations).has_value());
  request.set_agent("a\nb");
  EXPECT_FALSE(Validate(request, &violations).has_value());
  EXPECT_THAT(Fields(violations), ElementsAre("agent"));
}

TEST(FleetMessagesTest, ReadOutboxHasABoundAndADefault) {
  std::vector<Violation> violations;
  v1::ReadOutboxRequest request;
  EXPECT_EQ(RowsOf(request.max_rows(), kDefaultOutboxRows), 100U);
  request.set_max_rows(1001);
  EXPECT_FALSE(Validate(request, &violations).has_value());
  EXPECT_THAT(Fields(violations), ElementsAre("max_rows"));
}

TEST(FleetMessagesTest, AnOutboxRowTellsTuningEnvironmentAndCard) {
  db::OutboxPage page;
  db::OutboxEntry entry;
  entry.id.set_epoch(77);
  entry.id.set_sequence(3);
  entry.tuning = db::ValidSampleTuning(1);
  entry.tuning.conditions.known = true;
  entry.tuning.conditions.clock_reasons = 4;
  entry.environment = db::SampleEnvironment();
  page.entries.push_back(entry);
  page.void_ids.emplace_back().set_sequence(9);
  page.more = true;
  const v1::ReadOutboxResponse response = ToProto(page);
  ASSERT_EQ(response.rows_size(), 1);
  const v1::OutboxRow& row = response.rows(0);
  EXPECT_EQ(row.id().epoch(), 77);
  EXPECT_EQ(row.id().sequence(), 3);
  EXPECT_EQ(row.tuning().problem_text(), entry.tuning.key.problem_text);
  EXPECT_EQ(row.tuning().candidates(0).samples_ns_size(), 0);
  EXPECT_EQ(row.environment().provenance().driver_version(), "570.124");
  EXPECT_EQ(row.tuning().conditions().clock_reasons(0), v1::CLOCK_REASON_POWER_CAP);
  EXPECT_EQ(response.void_ids(0).sequence(), 9);
  EXPECT_TRUE(response.more());
}

}  // namespace
}  // namespace convtune::rpc::messages
