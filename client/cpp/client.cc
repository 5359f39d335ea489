#include "client/cpp/client.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/wrappers.pb.h>
#include <google/rpc/error_details.pb.h>
#include <google/rpc/status.pb.h>
#include <grpc/support/time.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "convtune/v1/bundle_service.grpc.pb.h"
#include "convtune/v1/tuning_service.grpc.pb.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"

namespace convtune::client {
namespace {

constexpr int kMaxReceiveBytes = 256 << 20;
// A daemon that starts is found soon by those who wait for it.
constexpr int kFirstReconnectMs = 50;
constexpr int kLongestReconnectMs = 1000;

absl::StatusOr<std::string> ReadPem(const std::string& field, const std::string& path) {
  if (path.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": must name a PEM file, as TCP is served with mutual TLS only"));
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": must name a readable PEM file, but '", path,
                     "' is not: ", errno != 0 ? std::strerror(errno) : "empty"));
  }
  return text.str();
}

using google::protobuf::FieldDescriptor;

constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";

// A deadline of gRPC's, by a clock that nobody sets.
gpr_timespec After(absl::Duration time, gpr_timespec begin = gpr_now(GPR_CLOCK_MONOTONIC)) {
  return gpr_time_add(begin, gpr_time_from_nanos(absl::ToInt64Nanoseconds(time), GPR_TIMESPAN));
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

}  // namespace

std::vector<Violation> ViolationsOf(const absl::Status& status) {
  std::vector<Violation> violations;
  google::rpc::Status details;
  const auto payload = status.GetPayload(kRpcDetailsUrl);
  if (!payload.has_value() || !details.ParseFromString(std::string(*payload))) return violations;
  for (const auto& any : details.details()) {
    google::rpc::BadRequest bad;
    if (!any.Is<google::rpc::BadRequest>() || !any.UnpackTo(&bad)) continue;
    for (const auto& violation : bad.field_violations()) {
      violations.push_back({violation.field(), violation.description()});
    }
  }
  return violations;
}

std::vector<std::pair<size_t, std::string>> RefusedProblems(const absl::Status& status,
                                                            size_t count) {
  constexpr std::string_view kField = "problems[";
  std::vector<std::pair<size_t, std::string>> refused;
  for (const Violation& violation : ViolationsOf(status)) {
    const std::string& field = violation.field;
    const size_t end = std::min(field.find(']'), field.size());
    size_t place = count;
    if (!field.starts_with(kField) || end == field.size() ||
        !absl::SimpleAtoi(field.substr(kField.size(), end - kField.size()), &place) ||
        place >= count) {
      return {};
    }
    refused.emplace_back(place, absl::StrCat(violation.field, ": ", violation.rule));
  }
  return refused;
}

bool IsFromDaemon(const absl::Status& status) {
  return status.GetPayload(kRpcDetailsUrl).has_value();
}

absl::StatusOr<std::unique_ptr<Client>> Client::Create(const Options& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstReconnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLongestReconnectMs);
  arguments.SetUserAgentPrefix("convtune/" CONVTUNE_VERSION);
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (!options.address.unix_socket) {
    grpc::SslCredentialsOptions pem;
    ASSIGN_OR_RETURN(pem.pem_root_certs, ReadPem("tls_ca", options.tls.ca));
    ASSIGN_OR_RETURN(pem.pem_cert_chain, ReadPem("tls_cert", options.tls.cert));
    ASSIGN_OR_RETURN(pem.pem_private_key, ReadPem("tls_key", options.tls.key));
    credentials = grpc::SslCredentials(pem);
  }
  // It connects at the first call.
  return std::unique_ptr<Client>(new Client(
      options, grpc::CreateCustomChannel(options.address.ToText(), credentials, arguments)));
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
                               bool waits_for_connection, const std::optional<Doubt>& doubt) {
  using google::protobuf::MessageLite;
  grpc::ClientContext context;
  const gpr_timespec begin = gpr_now(GPR_CLOCK_MONOTONIC);
  context.set_deadline(After(timeout, begin));
  context.set_wait_for_ready(waits_for_connection);
  grpc::CompletionQueue queue;
  grpc::Status status;
  const auto call = grpc::TemplatedGenericStub<MessageLite, MessageLite>(channel_).PrepareUnaryCall(
      &context, path, request, &queue);
  call->StartCall();
  call->Finish(response, &status, &status);
  void* tag = nullptr;
  bool ok = false;
  bool ended = false;
  // The call writes to `status` and `*response`: it must have ended before this function does, also
  // where `enough` throws.
  const absl::Cleanup drain = [&] {
    if (!ended) context.TryCancel();
    queue.Shutdown();
    while (queue.Next(&tag, &ok)) continue;
  };
  const auto ends_in = [&](absl::Duration time) {
    return queue.AsyncNext(&tag, &ok, After(time, begin)) != grpc::CompletionQueue::TIMEOUT;
  };
  if (doubt) ended = ends_in(doubt->after);
  const bool given_up = doubt && !ended && doubt->enough();
  if (given_up) context.TryCancel();
  // gRPC's timer, which ends a call at its deadline, waits by the wall clock, which may be set. The
  // queue is polled by the monotonic clock.
  if (!ended && !ends_in(timeout)) {
    context.TryCancel();
    queue.Next(&tag, &ok);
    if (!status.ok()) status = {grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded"};
  }
  ended = true;
  // An answer that came all the same is one.
  if (given_up && !status.ok()) return absl::CancelledError("given up");
  return Result(status);
}

absl::Status Client::Result(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED &&
      channel_->GetState(false) != GRPC_CHANNEL_READY) {
    return absl::UnavailableError("nobody answered within the timeout");
  }
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  if (!status.error_details().empty()) {
    result.SetPayload(kRpcDetailsUrl, absl::Cord(status.error_details()));
  }
  return result;
}

absl::StatusOr<v1::BatchGetResponse> Client::BatchGet(const v1::BatchGetRequest& request,
                                                      absl::Duration timeout,
                                                      const std::optional<Doubt>& doubt) {
  const SteadyTime deadline = SteadyTime::Now() + timeout;
  v1::BatchGetResponse response;
  RETURN_IF_ERROR(CallUnary(PathOf(*request.GetDescriptor()), request, timeout, &response,
                            /*waits_for_connection=*/false, doubt));
  std::vector<const FieldDescriptor*> fields;
  v1::BatchGetRequest::GetReflection()->ListFields(request, &fields);
  const std::set<int> known(response.known_fields().begin(), response.known_fields().end());
  for (const FieldDescriptor* field : fields) {
    // Every daemon knows those below 10.
    if (field->number() >= 10 && known.count(field->number()) == 0) {
      return absl::UnimplementedError(
          absl::StrCat(field->name(), ": the daemon is too old to know it"));
    }
  }
  const int given = response.results_size();
  if (given > 0 && given < request.problems_size()) {  // the reply had no room for the others
    v1::BatchGetRequest rest = request;
    rest.mutable_problems()->DeleteSubrange(0, given);
    ASSIGN_OR_RETURN(const v1::BatchGetResponse others,
                     BatchGet(rest, deadline - SteadyTime::Now()));
    response.mutable_results()->MergeFrom(others.results());
  }
  if (response.results_size() != request.problems_size()) {
    return absl::InternalError(absl::StrCat("the daemon answered ", response.results_size(), " of ",
                                            request.problems_size(), " problems"));
  }
  return response;
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
    // Finish says what is wrong.
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
    // Whatever the daemon answers, there is a connection then.
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
