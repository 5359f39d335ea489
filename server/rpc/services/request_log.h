// A RequestLog writes one log line for each call; the request's id ties other
// lines to it.
#pragma once

#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace grpc {
class CallbackServerContext;
class Status;
}  // namespace grpc

namespace google::protobuf {
class Message;
}  // namespace google::protobuf

namespace convtune::rpc::services {

// Metadata key under which a caller may send an id for its request, and under
// which the id is sent back. 1 to 128 printable ASCII characters; anything else
// is replaced by a generated one.
inline constexpr char kRequestIdKey[] = "x-request-id";

// Id of the request that this thread is working for; empty if there is none.
std::string_view CurrentRequestId();

// Makes `id` this thread's current request id while it lives. `id` outlives it.
class ScopedRequestId {
 public:
  explicit ScopedRequestId(std::string_view id);
  ~ScopedRequestId();
  ScopedRequestId(const ScopedRequestId&) = delete;
  ScopedRequestId& operator=(const ScopedRequestId&) = delete;

 private:
  std::string_view previous_;
};

// A RequestLog writes the log line of a call and counts the call in
// CallStats::Global(). Copyable.
class RequestLog {
 public:
  // `context` is that of a call that is not finished yet. Reads the metadata, and adds the id to
  // the initial metadata of the reply. `method`, which outlives the log, is a full name such
  // as "convtune.v1.TuningService/BatchGet".
  RequestLog(std::string_view method, grpc::CallbackServerContext* context);

  const std::string& request_id() const { return request_id_; }
  // Counts the call, and writes the line: error level if the daemon is at fault, info for other
  // failures, debug for success. Call it before the call is finished.
  void Finished(const grpc::Status& status) const;
  // Writes the line of audit: who called, and the request, the state before and the reply, each as
  // protobuf's JSON (nullptr: left out). To be called before Finished.
  void Audit(const google::protobuf::Message& request, const google::protobuf::Message* before,
             const google::protobuf::Message* after, const grpc::Status& status) const;

 private:
  std::string_view method_;
  std::string request_id_;
  grpc::CallbackServerContext* context_;
  SteadyTime start_;
};

}  // namespace convtune::rpc::services
