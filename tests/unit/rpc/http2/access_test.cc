#include "server/rpc/http2/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace convtune::rpc::http2 {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kStranger = 40'001;
constexpr uid_t kKnown = 40'002;
constexpr gid_t kTheirs = 40'010;
constexpr gid_t kOther = 40'011;

AccessRules Rules(const std::vector<std::string>& texts) {
  absl::StatusOr<AccessRules> rules = AccessRules::Parse(texts);
  EXPECT_TRUE(rules.ok()) << rules.status();
  return *std::move(rules);
}

TEST(AccessRules, WithoutRulesEverybodyIsAnAdmin) {
  const AccessRules rules;
  EXPECT_EQ(rules.OfPeer(kStranger, {kTheirs}), Role::kAdmin);
  EXPECT_EQ(rules.OfCertificate({"x"}), Role::kAdmin);
}

TEST(AccessRules, TheLargestRoleThatMatchesCounts) {
  const AccessRules rules =
      Rules({"read=user:*", "tune=group:40010", "admin=group:40011", "read=user:40002"});
  EXPECT_EQ(rules.OfPeer(kStranger, {}), Role::kRead);
  EXPECT_EQ(rules.OfPeer(kKnown, {kTheirs}), Role::kTune);
  EXPECT_EQ(rules.OfPeer(kKnown, {1, kTheirs, kOther}), Role::kAdmin);
}

TEST(AccessRules, WhoIsNotNamedHasNone) {
  const AccessRules rules = Rules({"admin=user:40002"});
  EXPECT_EQ(rules.OfPeer(kStranger, {kTheirs}), Role::kNone);
  EXPECT_EQ(rules.OfPeer(kKnown, {}), Role::kAdmin);
}

// A user's number is not a group's.
TEST(AccessRules, UsersAndGroupsAreNotMixed) {
  const AccessRules rules = Rules({"admin=user:40010", "tune=group:40002"});
  EXPECT_EQ(rules.OfPeer(kKnown, {kTheirs}), Role::kNone);
}

TEST(AccessRules, RootAndTheDaemonsOwnUserAreAdminsAlways) {
  const AccessRules rules = Rules({"read=user:40002"});
  EXPECT_EQ(rules.OfPeer(0, {}), Role::kAdmin);
  EXPECT_EQ(rules.OfPeer(geteuid(), {}), Role::kAdmin);
}

TEST(AccessRules, ACertificatesNamesAreComparedWhole) {
  const AccessRules rules = Rules({"tune=cert:spiffe://fleet/tuner", "admin=cert:ops.example"});
  EXPECT_EQ(rules.OfCertificate({"spiffe://fleet/tuner"}), Role::kTune);
  EXPECT_EQ(rules.OfCertificate({"other", "ops.example"}), Role::kAdmin);
  EXPECT_EQ(rules.OfCertificate({"spiffe://fleet/tuner2", "OPS.example", "*"}), Role::kNone);
  EXPECT_EQ(rules.OfCertificate({}), Role::kNone);
  EXPECT_EQ(rules.OfPeer(kStranger, {}), Role::kAdmin) << "rules for certificates alone";
}

TEST(AccessRules, NamesAreTheSystems) {
  EXPECT_EQ(Rules({"tune=group:root", "read=user:*"}).OfPeer(kStranger, {0}), Role::kTune);
}

TEST(AccessRules, WhatCannotBeIsRefusedByName) {
  for (const std::string text :
       {"", "read", "user:root", "Read=user:root", "none=user:root", "read=user:", "read=group:*",
        "read=cert:", "read=host:x", "read=user:4294967295", "read=user:-1",
        "read=user:no such user", "tune=group:no such group"}) {
    const absl::Status status = AccessRules::Parse({"read=user:*", text}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("\"" + text + "\""));
  }
}

TEST(RequiredRole, WhatNobodyHasPutOnTheListTakesAnAdmin) {
  EXPECT_EQ(RequiredRole("/convtune.v1.TuningService/New"), Role::kAdmin);
  EXPECT_EQ(RequiredRole("/other.Service/BatchGet"), Role::kAdmin);
  EXPECT_EQ(RequiredRole(""), Role::kAdmin);
  EXPECT_EQ(RequiredRole("/convtune.v1.TuningService/BatchGet"), Role::kRead);
}

}  // namespace
}  // namespace convtune::rpc::http2
