#include "server/rpc/messages/status_mapper.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/message.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "proto/model/text.h"
#include "proto/model/violation.h"

namespace convtune::rpc::messages {
namespace {

// Together, base64 and percent encoding included, these stay below a client's default of 8 KiB.
constexpr size_t kMaxMessageBytes = 512;
constexpr size_t kMaxViolationBytes = 3072;
constexpr size_t kMaxTextBytes = 300;
constexpr size_t kViolationOverhead = 8;
constexpr int kRetrySeconds = 1;

std::string Shorten(std::string_view text, size_t limit) {
  return text.size() <= limit ? std::string(text) : std::string(CutUtf8(text, limit)) + "...";
}

std::string_view Reason(absl::StatusCode code) {
  using enum absl::StatusCode;
  constexpr std::pair<absl::StatusCode, std::string_view> kReasons[] = {
      {kNotFound, "RESOURCE_NOT_FOUND"},
      {kAlreadyExists, "RESOURCE_EXISTS"},
      {kFailedPrecondition, "PRECONDITION_NOT_MET"},
      {kUnavailable, "SERVICE_UNAVAILABLE"},
      {kResourceExhausted, "LIMIT_REACHED"},
      {kCancelled, "CALL_CANCELLED"},
      {kDeadlineExceeded, "DEADLINE_PASSED"},
      {kInvalidArgument, "ARGUMENT_REFUSED"},
      {kOutOfRange, "ARGUMENT_REFUSED"},
      {kPermissionDenied, "ACCESS_DENIED"},
      {kUnauthenticated, "ACCESS_DENIED"},
      {kUnimplemented, "NOT_SUPPORTED"}};
  for (const auto& [known, reason] : kReasons) {
    if (known == code) return reason;
  }
  return "INTERNAL_ERROR";
}

grpc::Status WithDetails(const google::rpc::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), status.message(),
                      status.SerializeAsString());
}

}  // namespace

grpc::Status ToGrpcStatus(const std::vector<Violation>& violations) {
  google::rpc::BadRequest bad_request;
  size_t bytes = 0;
  size_t sent = 0;
  for (const Violation& violation : violations) {
    const std::string field = Shorten(violation.field, kMaxTextBytes);
    const std::string rule = Shorten(violation.rule, kMaxTextBytes);
    if (sent > 0 && bytes + field.size() + rule.size() > kMaxViolationBytes) {
      break;
    }
    auto* out = bad_request.add_field_violations();
    out->set_field(field);
    out->set_description(rule);
    bytes += field.size() + rule.size() + kViolationOverhead;
    ++sent;
  }
  if (sent < violations.size()) {
    auto* out = bad_request.add_field_violations();
    out->set_field("...");
    out->set_description(absl::StrCat("and ", violations.size() - sent, " more violations"));
  }
  google::rpc::Status status;
  status.set_code(static_cast<int>(absl::StatusCode::kInvalidArgument));
  status.set_message(Shorten(ToString(violations), kMaxMessageBytes));
  status.add_details()->PackFrom(bad_request);
  return WithDetails(status);
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) {
    return grpc::Status::OK;
  }
  if (const std::optional<Violation> violation = ViolationIn(status); violation.has_value()) {
    return ToGrpcStatus(std::vector<Violation>{*violation});
  }
  google::rpc::Status out;
  out.set_code(static_cast<int>(status.code()));
  out.set_message(Shorten(std::string(status.message()), kMaxMessageBytes));
  google::rpc::ErrorInfo info;
  info.set_reason(std::string(Reason(status.code())));
  if (const std::optional<Missing> missing = MissingOf(status); missing.has_value()) {
    info.set_reason(absl::StrCat(absl::AsciiStrToUpper(missing->kind), "_NOT_FOUND"));
    (*info.mutable_metadata())[missing->kind] = Shorten(missing->name, kMaxTextBytes);
  }
  info.set_domain(std::string(kErrorDomain));
  out.add_details()->PackFrom(info);
  if (status.code() == absl::StatusCode::kUnavailable ||
      status.code() == absl::StatusCode::kResourceExhausted) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(kRetrySeconds);
    out.add_details()->PackFrom(retry);
  }
  return WithDetails(out);
}

}  // namespace convtune::rpc::messages
