// Deadline, retries and cancellation of every blocking call.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <chrono>
#include <memory>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/time/time.h"
#include "client/cpp/rpc_error.h"
#include "proto/base/status_macros.h"

namespace convtune {

inline void SetTimeout(grpc::ClientContext* context, absl::Duration timeout) {
  if (timeout == absl::InfiniteDuration()) return;
  context->set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(timeout));
}

// With the daemon's details under kRpcDetailsUrl. A deadline that ends while
// there is no connection is not the daemon's.
inline absl::Status CallResult(const grpc::Status& status, grpc::Channel& channel) {
  if (status.ok()) return absl::OkStatus();
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED &&
      channel.GetState(false) != GRPC_CHANNEL_READY) {
    return absl::UnavailableError("no connection within the timeout");
  }
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  if (!status.error_details().empty()) {
    result.SetPayload(kRpcDetailsUrl, absl::Cord(status.error_details()));
  }
  return result;
}

// One unary call through a generated stub's method.
template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> UnaryCall(grpc::Channel& channel, Stub& stub,
                                   grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                                const Request&, Response*),
                                   const std::type_identity_t<Request>& request,
                                   absl::Duration timeout) {
  grpc::ClientContext context;
  SetTimeout(&context, timeout);
  Response response;
  RETURN_IF_ERROR(CallResult((stub.*method)(&context, request, &response), channel));
  return response;
}

}  // namespace convtune
