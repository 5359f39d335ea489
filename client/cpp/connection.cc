#include "client/cpp/connection.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/impl/client_unary_call.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <chrono>

#include "absl/strings/cord.h"
#include "client/cpp/rpc_error.h"

namespace convtune::client {

absl::Status Connection::CallUnary(const std::string& path,
                                   const google::protobuf::MessageLite& request,
                                   absl::Duration timeout,
                                   google::protobuf::MessageLite* response) {
  grpc::ClientContext context;
  SetTimeout(&context, timeout);
  const grpc::internal::RpcMethod method(path.c_str(), grpc::internal::RpcMethod::NORMAL_RPC);
  return Result(
      grpc::internal::BlockingUnaryCall(channel_.get(), method, &context, request, response));
}

absl::Status Connection::Result(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED &&
      channel_->GetState(false) != GRPC_CHANNEL_READY) {
    return absl::UnavailableError("no connection within the timeout");
  }
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  if (!status.error_details().empty()) {
    result.SetPayload(kRpcDetailsUrl, absl::Cord(status.error_details()));
  }
  return result;
}

void Connection::SetTimeout(grpc::ClientContext* context, absl::Duration timeout) {
  if (timeout == absl::InfiniteDuration()) return;
  context->set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(timeout));
}

}  // namespace convtune::client
