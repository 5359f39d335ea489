#include "client/cpp/client.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/wrappers.pb.h>
#include <grpc/support/time.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/async_unary_call.h>

#include <set>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/rpc_error.h"
#include "convtune/v1/bundle_service.grpc.pb.h"
#include "convtune/v1/tuning_service.grpc.pb.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"

namespace convtune::client {
namespace {

using google::protobuf::FieldDescriptor;

constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";

// A deadline of gRPC's, by a clock that nobody sets.
gpr_timespec After(absl::Duration time) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(absl::ToInt64Nanoseconds(time), GPR_TIMESPAN));
}

// Until the call whose end is all that `queue` gets has ended. gRPC ends one at its deadline by a
// timer, and its thread of timers waits by the wall clock; a queue is polled by the other.
void AwaitEnd(grpc::CompletionQueue* queue, gpr_timespec deadline, grpc::ClientContext* context,
              grpc::Status* status) {
  void* tag = nullptr;
  bool ok = false;
  if (queue->AsyncNext(&tag, &ok, deadline) != grpc::CompletionQueue::TIMEOUT) return;
  context->TryCancel();
  queue->Next(&tag, &ok);
  if (!status->ok()) *status = {grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded"};
}

// "/convtune.v1.TuningService/GetTuning" of a GetTuningRequest: both are in one file.
std::string PathOf(const google::protobuf::Descriptor& request) {
  const google::protobuf::FileDescriptor& file = *request.file();
  for (int s = 0; s < file.service_count(); ++s) {
    for (int m = 0; m < file.service(s)->method_count(); ++m) {
      const google::protobuf::MethodDescriptor& method = *file.service(s)->method(m);
      if (method.input_type() == &request) {
        return absl::StrCat("/", method.service()->full_name(), "/", method.name());
      }
    }
  }
  return "";
}

absl::StatusOr<v1::BatchGetResponse> IfItHeeds(const v1::BatchGetRequest& request,
                                               v1::BatchGetResponse response) {
  std::vector<const FieldDescriptor*> fields;
  request.GetReflection()->ListFields(request, &fields);
  const std::set<int> known(response.known_fields().begin(), response.known_fields().end());
  for (const FieldDescriptor* field : fields) {
    // Every daemon knows those below 10.
    if (field->number() >= 10 && known.count(field->number()) == 0) {
      return absl::UnimplementedError(
          absl::StrCat(field->name(), ": the daemon is too old to know it"));
    }
  }
  return response;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Create(const Options& options) {
  ASSIGN_OR_RETURN(auto channel, OpenChannel(options.address, options.tls));
  return std::unique_ptr<Client>(new Client(options, std::move(channel)));
}

absl::Status Client::CallMethod(const google::protobuf::Message& request, absl::Duration timeout,
                                google::protobuf::Message* response) {
  return CallUnary(PathOf(*request.GetDescriptor()), request, timeout, response);
}

absl::Status Client::ReadPages(int most, google::protobuf::Message* request,
                               google::protobuf::Message* all) {
  const google::protobuf::Descriptor& type = *all->GetDescriptor();
  const google::protobuf::Reflection& of_response = *all->GetReflection();
  const FieldDescriptor* const next = type.FindFieldByName("next_page_token");
  const FieldDescriptor* rows = nullptr;
  for (int i = 0; i < type.field_count() && rows == nullptr; ++i) {
    if (type.field(i)->is_repeated()) rows = type.field(i);
  }
  const std::unique_ptr<google::protobuf::Message> page(all->New());
  std::string token;
  do {
    if (!token.empty()) {
      request->GetReflection()->SetString(
          request, request->GetDescriptor()->FindFieldByName("page_token"), token);
    }
    RETURN_IF_ERROR(CallMethod(*request, options_.timeout, page.get()));
    token = of_response.GetString(*page, next);
    all->MergeFrom(*page);  // which appends the rows
  } while (!token.empty() && of_response.FieldSize(*all, rows) < most);
  while (of_response.FieldSize(*all, rows) > most) of_response.RemoveLast(all, rows);
  of_response.SetString(all, next, token);
  return absl::OkStatus();
}

absl::Status Client::CallUnary(const std::string& path, const google::protobuf::Message& request,
                               absl::Duration timeout, google::protobuf::Message* response,
                               bool waits_for_connection) {
  using google::protobuf::MessageLite;
  grpc::ClientContext context;
  const gpr_timespec end = After(timeout);
  context.set_deadline(end);
  context.set_wait_for_ready(waits_for_connection);
  grpc::CompletionQueue queue;
  grpc::Status status;
  const grpc::internal::RpcMethod method(path.c_str(), grpc::internal::RpcMethod::NORMAL_RPC);
  const std::unique_ptr<grpc::ClientAsyncResponseReader<MessageLite>> call(
      grpc::internal::ClientAsyncResponseReaderHelper::Create<MessageLite, MessageLite>(
          channel_.get(), &queue, method, &context, request));
  call->StartCall();
  call->Finish(response, &status, &status);
  AwaitEnd(&queue, end, &context, &status);
  return Result(status);
}

absl::Status Client::Result(const grpc::Status& status) {
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

absl::StatusOr<v1::BatchGetResponse> Client::BatchGet(const v1::BatchGetRequest& request,
                                                      absl::Duration timeout) {
  ASSIGN_OR_RETURN(auto response, Call<v1::BatchGetResponse>(request, timeout));
  return IfItHeeds(request, std::move(response));
}

absl::StatusOr<v1::BatchGetResponse> Client::BatchGetOrElse(const v1::BatchGetRequest& request,
                                                            absl::Duration timeout,
                                                            absl::Duration ask_after,
                                                            const std::function<bool()>& enough) {
  grpc::ClientContext context;
  const gpr_timespec end = After(timeout);
  context.set_deadline(end);
  grpc::CompletionQueue queue;
  v1::BatchGetResponse response;
  grpc::Status status;
  const auto call = v1::TuningService::NewStub(channel_)->AsyncBatchGet(&context, request, &queue);
  call->Finish(&response, &status, &response);
  const gpr_timespec until = After(ask_after);
  void* tag = nullptr;
  bool ok = false;
  bool given_up = false;
  // Where `enough` throws, too, the call must have ended before what it writes goes.
  bool ended = false;
  const absl::Cleanup drain = [&] {
    if (!ended) context.TryCancel();
    queue.Shutdown();
    while (queue.Next(&tag, &ok)) continue;
  };
  if (queue.AsyncNext(&tag, &ok, until) == grpc::CompletionQueue::TIMEOUT) {
    given_up = enough();
    if (given_up) context.TryCancel();
    AwaitEnd(&queue, end, &context, &status);
  }
  ended = true;
  // An answer that came all the same is one.
  if (given_up && !status.ok()) return absl::CancelledError("given up");
  RETURN_IF_ERROR(Result(status));
  return IfItHeeds(request, std::move(response));
}

absl::StatusOr<v1::TuningJob> Client::WatchTuningJob(
    const v1::WatchTuningJobRequest& request,
    const std::function<void(const v1::TuningJob&)>& on_state) {
  grpc::ClientContext context;
  const auto reader = v1::TuningService::NewStub(channel_)->WatchTuningJob(&context, request);
  v1::TuningJob job;
  while (reader->Read(&job)) on_state(job);
  RETURN_IF_ERROR(Result(reader->Finish()));
  return job;
}

absl::Status Client::ExportBundle(const v1::ExportBundleRequest& request,
                                  const std::function<absl::Status(const std::string&)>& take,
                                  absl::Duration timeout) {
  grpc::ClientContext context;
  context.set_deadline(After(timeout));
  const auto reader = v1::BundleService::NewStub(channel_)->ExportBundle(&context, request);
  v1::ExportBundleResponse piece;
  absl::Status taken;
  while (taken.ok() && reader->Read(&piece)) taken = take(piece.chunk());
  if (!taken.ok()) context.TryCancel();
  const absl::Status status = Result(reader->Finish());
  return taken.ok() ? status : taken;
}

absl::StatusOr<v1::ImportBundleResponse> Client::ImportBundle(
    const std::function<absl::StatusOr<std::string>()>& next, absl::Duration timeout) {
  grpc::ClientContext context;
  context.set_deadline(After(timeout));
  v1::ImportBundleResponse response;
  const auto writer = v1::BundleService::NewStub(channel_)->ImportBundle(&context, &response);
  v1::ImportBundleRequest request;
  absl::Status given;
  while (true) {
    auto piece = next();
    given = piece.status();
    if (!given.ok()) context.TryCancel();
    if (!given.ok() || piece->empty()) break;
    request.set_chunk(*std::move(piece));
    // What is wrong, Finish says.
    if (!writer->Write(request)) break;
  }
  writer->WritesDone();
  const absl::Status status = Result(writer->Finish());
  RETURN_IF_ERROR(given);
  RETURN_IF_ERROR(status);
  return response;
}

void Client::Pause(absl::Duration time) {
  const SteadyTime end = SteadyTime::Now() + time;
  if (channel_->GetState(false) != GRPC_CHANNEL_READY) {
    // Whatever it answers, there is a connection then.
    google::protobuf::Int32Value response;
    CallUnary(kHealthCheck, google::protobuf::StringValue(), time, &response,
              /*waits_for_connection=*/true)
        .IgnoreError();
  }
  absl::SleepFor(end - SteadyTime::Now());
}

absl::StatusOr<bool> Client::IsServing(const std::string& service) {
  // HealthCheckRequest is {string service = 1} and HealthCheckResponse is
  // {enum status = 1, SERVING = 1}: on the wire the same as these two, which
  // every protobuf installation has.
  constexpr int kServing = 1;
  google::protobuf::StringValue request;
  request.set_value(service);
  google::protobuf::Int32Value response;
  RETURN_IF_ERROR(CallUnary(kHealthCheck, request, options_.timeout, &response));
  return response.value() == kServing;
}

}  // namespace convtune::client
