#include "server/rpc/messages/status_mapper.h"

#include <gtest/gtest.h>

#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "proto/model/violation.h"

namespace convtune::rpc::messages {
namespace {

google::rpc::Status Details(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), static_cast<int>(status.error_code()));
  EXPECT_EQ(details.message(), status.error_message());
  return details;
}

template <typename Detail>
bool Find(const google::rpc::Status& status, Detail* detail) {
  for (const auto& any : status.details()) {
    if (any.UnpackTo(detail)) {
      return true;
    }
  }
  return false;
}

TEST(StatusMapper, ViolationsBecomeBadRequest) {
  const grpc::Status status = ToGrpcStatus({{"a[0]", "must be 1"}, {"b", "is required"}});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "a[0]: must be 1; b: is required");
  google::rpc::BadRequest bad;
  ASSERT_TRUE(Find(Details(status), &bad));
  ASSERT_EQ(bad.field_violations_size(), 2);
  EXPECT_EQ(bad.field_violations(0).field(), "a[0]");
  EXPECT_EQ(bad.field_violations(1).description(), "is required");
}

TEST(StatusMapper, WhatIsMissingIsNamedByKindAndName) {
  const grpc::Status status = ToGrpcStatus(MissingError({"job", "jobs/7"}, "there is no jobs/7"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "there is no jobs/7");
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(Find(Details(status), &info));
  EXPECT_EQ(info.reason(), "JOB_NOT_FOUND");
  EXPECT_EQ(info.metadata().at("job"), "jobs/7");
}

TEST(StatusMapper, ManyViolationsFitATrailerAndAreCounted) {
  std::vector<Violation> violations(5000, {"problems[1].text", std::string(1000, 'x')});
  const grpc::Status status = ToGrpcStatus(violations);
  EXPECT_LE(status.error_message().size() + status.error_details().size() * 4 / 3, 8192u - 1024);
  google::rpc::BadRequest bad;
  ASSERT_TRUE(Find(Details(status), &bad));
  const auto& last = bad.field_violations(bad.field_violations_size() - 1);
  EXPECT_EQ(last.field(), "...");
  EXPECT_EQ(last.description(),
            "and " + std::to_string(5000 - bad.field_violations_size() + 1) + " more violations");
}

TEST(StatusMapper, CutTextStaysUtf8) {
  std::string text;
  for (int i = 0; i < 400; ++i) {
    text += "\xE2\x82\xAC";
  }
  google::rpc::Status details = Details(ToGrpcStatus({{"f", text}}));
  google::rpc::BadRequest bad;
  ASSERT_TRUE(Find(details, &bad));  // protobuf refuses strings that are not UTF-8
}

TEST(StatusMapper, OtherErrorsCarryErrorInfo) {
  const grpc::Status status = ToGrpcStatus(absl::NotFoundError("no job jobs/7"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "no job jobs/7");
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(Find(Details(status), &info));
  EXPECT_EQ(info.domain(), "convtune");
  EXPECT_EQ(info.reason(), "RESOURCE_NOT_FOUND");
}

TEST(StatusMapper, UnavailableSaysWhenToTryAgain) {
  google::rpc::RetryInfo retry;
  ASSERT_TRUE(Find(Details(ToGrpcStatus(absl::UnavailableError("draining"))), &retry));
  EXPECT_GT(retry.retry_delay().seconds(), 0);
  EXPECT_FALSE(Find(Details(ToGrpcStatus(absl::InternalError("x"))), &retry));
}

TEST(StatusMapper, AViolationNamesItsField) {
  const grpc::Status status = ToGrpcStatus(ViolationError({"environment", "is required"}));
  EXPECT_EQ(status.error_message(), "environment: is required");
  google::rpc::BadRequest bad;
  ASSERT_TRUE(Find(Details(status), &bad));
  EXPECT_EQ(bad.field_violations(0).field(), "environment");
  EXPECT_EQ(bad.field_violations(0).description(), "is required");
}

TEST(StatusMapper, OkStaysOk) { EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok()); }

}  // namespace
}  // namespace convtune::rpc::messages
