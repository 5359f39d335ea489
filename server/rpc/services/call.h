// Reading, answering and failing of calls, for every handler. Requests are read
// here rather than by gRPC, which answers UNIMPLEMENTED for a message that it
// cannot read.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/strip.h"
#include "google/protobuf/arena.h"
#include "google/protobuf/empty.pb.h"
#include "google/protobuf/message.h"
#include "grpcpp/impl/codegen/server_callback_handlers.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "grpcpp/support/status.h"
#include "proto/base/mutex.h"
#include "proto/base/strings.h"
#include "server/rpc/messages/request_validator.h"
#include "server/rpc/messages/status_mapper.h"
#include "server/rpc/services/request_log.h"
#include "server/rpc/services/work_queue.h"

namespace convtune::rpc::services {

// INVALID_ARGUMENT that names the field if the bytes are not such a message.
grpc::Status ReadMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message* message);

// The `size` bytes that `write` writes, in one piece. RESOURCE_EXHAUSTED if a
// reply may not be as long, or if too many bytes of replies wait for callers who do not read.
grpc::Status WriteReply(size_t size, const std::function<void(uint8_t*)>& write,
                        grpc::ByteBuffer* bytes);
// The same with a message.
grpc::Status WriteMessage(const google::protobuf::Message& message, grpc::ByteBuffer* bytes);

// INTERNAL; `what` is for the log and goes no further. `method` may be the full name.
grpc::Status ExceptionStatus(std::string_view method, const char* what);

// Runs `fn`, which returns a grpc::Status; what it throws becomes INTERNAL.
template <typename Fn>
grpc::Status CatchAll(std::string_view method, const Fn& fn) {
  try {
    return fn();
  } catch (const std::exception& e) {
    return ExceptionStatus(method, e.what());
  } catch (...) {
    return ExceptionStatus(method, "unknown exception");
  }
}

// Reads and validates a request of type `Request` into `*args`, an optional of
// what the overload of Validate() returns.
template <typename Request, typename Args>
grpc::Status ReadRequest(const grpc::ByteBuffer& bytes, std::optional<Args>* args) {
  google::protobuf::Arena arena;
  auto* request = google::protobuf::Arena::CreateMessage<Request>(&arena);
  grpc::Status status = ReadMessage(bytes, request);
  if (!status.ok()) {
    return status;
  }
  std::vector<Violation> violations;
  *args = messages::Validate(*request, &violations);
  return args->has_value() ? grpc::Status::OK : messages::ToGrpcStatus(violations);
}

// A SharedCall is the reactor of a call that several threads may end: the first end counts. It also
// keeps the tuner's token of the call's work.
template <typename Reactor>
class SharedCall : public Reactor {
 protected:
  explicit SharedCall(RequestLog log) : log_(std::move(log)) {}

  void End(const grpc::Status& status) {
    MutexLock lock(mutex_);
    EndLocked(status);
  }
  void EndLocked(const grpc::Status& status) REQUIRES(mutex_) {
    if (std::exchange(ended_, true)) return;
    log_.Finished(status);
    this->Finish(status);
  }
  uint64_t token() {
    MutexLock lock(mutex_);
    return token_;
  }

  const RequestLog log_;
  Mutex mutex_;
  bool ended_ GUARDED_BY(mutex_) = false;
  uint64_t token_ GUARDED_BY(mutex_) = 0;  // 0: the tuner does nothing for the call
};

// A RawService gives each of its methods the request's bytes. The generated
// WithRawCallbackMethod classes do the same with an override for each method.
class RawService : public grpc::Service {
 protected:
  // `name` is the service's full name.
  explicit RawService(std::string name) : name_(std::move(name)) {}

  using Type = grpc::internal::RpcMethod::RpcType;
  using UnaryHandler = grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer>;
  using ServerStreamingHandler =
      grpc::internal::CallbackServerStreamingHandler<grpc::ByteBuffer, grpc::ByteBuffer>;
  using ClientStreamingHandler =
      grpc::internal::CallbackClientStreamingHandler<grpc::ByteBuffer, grpc::ByteBuffer>;

  // Takes ownership of `handler`.
  void Add(std::string_view method, Type type, grpc::internal::MethodHandler* handler);
  // Passed as `before` for a method whose calls have no line of audit.
  struct NotAudited {};
  // Passed as `before` for a method whose line of audit has no member "before".
  struct NothingBefore {
    std::optional<google::protobuf::Empty> operator()(const auto&) const { return {}; }
  };

  // The method whose request is a `Request` and whose reply is a `Reply`: ListBans of
  // ListBansRequest. `fn` is called with what Validate() gives for the request, and returns the
  // reply or an error; or it is called with an empty reply to fill as well, and returns an
  // absl::Status. It runs on `queue`, or at once if that is nullptr, which is for work that waits
  // for nothing. `queue` and what `fn` refers to outlive the server.
  //
  // With `before` each call has a line of audit (RequestLog::Audit). `before` is called ahead of
  // `fn` with the same request; the optional message that it returns is the line's "before".
  template <typename Request, typename Reply, typename Fn, typename Before = NotAudited>
  void Unary(WorkQueue* queue, Fn fn, Before before = {}) {
    using Args =
        typename decltype(messages::Validate(std::declval<const Request&>(), nullptr))::value_type;
    const std::string method(absl::StripSuffix(Request::descriptor()->name(), "Request"));
    Add(method, Type::NORMAL_RPC,
        new UnaryHandler([=, name = Concat(name_, "/", method)](
                             grpc::CallbackServerContext* context, const grpc::ByteBuffer* in,
                             grpc::ByteBuffer* out) -> grpc::ServerUnaryReactor* {
          grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
          const RequestLog log(name, context);
          const auto finish = [reactor, log](const grpc::Status& status) {
            log.Finished(status);
            reactor->Finish(status);
          };
          auto args = std::make_shared<std::optional<Args>>();
          const grpc::Status read =
              CatchAll(name, [&] { return ReadRequest<Request>(*in, args.get()); });
          const auto work = [=] {
            const ScopedRequestId scope(log.request_id());
            Reply reply;
            absl::Status done = absl::InternalError("it threw");
            const auto run = [&] {
              if constexpr (std::is_invocable_v<const Fn&, Args&, Reply*>) {
                done = fn(**args, &reply);
              } else {
                absl::StatusOr<Reply> made = fn(**args);
                done = made.status();
                if (done.ok()) reply = *std::move(made);
              }
              return done.ok() ? WriteMessage(reply, out) : messages::ToGrpcStatus(done);
            };
            finish(CatchAll(name, [&] {
              if constexpr (std::is_same_v<Before, NotAudited>) {
                return run();
              } else {
                const auto was = before(**args);
                grpc::Status status = CatchAll(name, run);
                Request request;
                ReadMessage(*in, &request);
                log.Audit(request, was ? &*was : nullptr, done.ok() ? &reply : nullptr, status);
                return status;
              }
            }));
          };
          if (!read.ok()) {
            finish(read);
          } else if (queue == nullptr) {
            work();
          } else if (!queue->Post(work)) {
            finish(messages::ToGrpcStatus(
                absl::ResourceExhaustedError("too many calls wait for the database; try again")));
          }
          return reactor;
        }));
  }

 private:
  const std::string name_;
  std::deque<std::string> paths_;  // of the methods; gRPC keeps pointers to them
};

}  // namespace convtune::rpc::services
