// Maps the program's errors to what a caller of gRPC gets: one place, so that
// every method fails alike.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"
#include "proto/model/violation.h"

namespace convtune::rpc::messages {

// Domain of every google.rpc.ErrorInfo.
inline constexpr std::string_view kErrorDomain = "convtune";

// INVALID_ARGUMENT with google.rpc.BadRequest, one field violation for each.
// HTTP/2 trailers are limited to 8 KiB by most clients, so what does not fit is
// cut and counted in a last violation of field "...". REQUIRES: not empty.
grpc::Status ToGrpcStatus(const std::vector<Violation>& violations);

// Same code and message, with details: a BadRequest where ViolationIn says which
// field is wrong, else an ErrorInfo, which says what is missing (reason
// JOB_NOT_FOUND, metadata job: jobs/7) where MissingOf does; UNAVAILABLE and
// RESOURCE_EXHAUSTED also say by RetryInfo when to try again.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace convtune::rpc::messages
