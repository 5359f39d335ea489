#include "server/rpc/http2/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace convtune::rpc::http2 {
namespace {

using ::testing::HasSubstr;

CertificateRoles Roles(const std::vector<std::string>& texts) {
  absl::StatusOr<CertificateRoles> roles = CertificateRoles::Parse(texts);
  EXPECT_TRUE(roles.ok()) << roles.status();
  return *std::move(roles);
}

TEST(CertificateRoles, WithoutRulesEverybodyIsAnAdmin) {
  EXPECT_EQ(CertificateRoles().RoleOf({"x"}), Role::kAdmin);
}

TEST(CertificateRoles, NamesAreComparedWhole) {
  const CertificateRoles roles =
      Roles({"tune=cert:spiffe://fleet/tuner", "admin=cert:ops.example"});
  EXPECT_EQ(roles.RoleOf({"spiffe://fleet/tuner"}), Role::kTune);
  EXPECT_EQ(roles.RoleOf({"other", "ops.example"}), Role::kAdmin);
  EXPECT_EQ(roles.RoleOf({"spiffe://fleet/tuner2", "OPS.example", "*"}), Role::kNone);
  EXPECT_EQ(roles.RoleOf({}), Role::kNone);
}

TEST(CertificateRoles, TheLargestRoleThatMatchesCounts) {
  const CertificateRoles roles =
      Roles({"read=cert:*", "admin=cert:a", "tune=cert:b", "tune=cert:a"});
  EXPECT_EQ(roles.RoleOf({"c"}), Role::kRead);
  EXPECT_EQ(roles.RoleOf({"b"}), Role::kTune);
  EXPECT_EQ(roles.RoleOf({"b", "a"}), Role::kAdmin);
}

TEST(CertificateRoles, WhatCannotBeIsRefusedByName) {
  for (const std::string text : {"", "read", "read=root", "Read=cert:a", "none=cert:a",
                                 "read=cert:", "read=host:x", "=cert:a"}) {
    const absl::Status status = CertificateRoles::Parse({"read=cert:*", text}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("\"" + text + "\""));
  }
}

TEST(CertificateRoles, ARuleForAUserNamesTheSettingThatReplacesIt) {
  const std::string message(CertificateRoles::Parse({"tune=user:alice"}).status().message());
  EXPECT_THAT(message, HasSubstr("--listen ROLE=unix:PATH"));
}

TEST(RequiredRole, WhatNobodyHasPutOnTheListTakesAnAdmin) {
  EXPECT_EQ(RequiredRole("/convtune.v1.TuningService/New"), Role::kAdmin);
  EXPECT_EQ(RequiredRole("/other.Service/BatchGet"), Role::kAdmin);
  EXPECT_EQ(RequiredRole(""), Role::kAdmin);
  EXPECT_EQ(RequiredRole("/convtune.v1.TuningService/BatchGet"), Role::kRead);
}

}  // namespace
}  // namespace convtune::rpc::http2
