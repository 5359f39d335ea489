#include "server/rpc/lookup_call.h"

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "google/protobuf/arena.h"
#include "proto/base/mutex.h"
#include "server/rpc/call.h"
#include "server/rpc/proto_converter.h"

namespace convtune {
namespace {

using std::chrono::system_clock;

// A client's cancel at its deadline arrives before the server's own deadline:
// on the wire a timeout is rounded up, by at most a hundredth.
bool DeadlineHasPassed(const grpc::CallbackServerContext& context, system_clock::time_point start) {
  const system_clock::time_point deadline = context.deadline();
  if (deadline == system_clock::time_point::max()) {
    return false;
  }
  constexpr auto kLatency = std::chrono::milliseconds(20);
  const auto slack = (deadline - start) / 50 + kLatency;
  return system_clock::now() + slack >= deadline;
}

class LookupReactor : public grpc::ServerUnaryReactor {
 public:
  LookupReactor(Tuner* tuner, grpc::CallbackServerContext* context, grpc::ByteBuffer* out)
      : context_(context),
        log_("BatchGet", context),
        state_(std::make_shared<State>(tuner, this, out)) {}

  void Start(const grpc::ByteBuffer& in) {
    const std::shared_ptr<State> state = state_;
    const ScopedRequestId scope(log_.request_id());
    std::optional<LookupRequest> request;
    const grpc::Status read =
        CatchAll("BatchGet", [&] { return ReadRequest<v1::BatchGetRequest>(in, &request); });
    if (!read.ok()) {
      state->Finish(read);
      return;
    }
    const grpc::Status started = CatchAll("BatchGet", [&] {
      state->SetToken(state->tuner->Lookup(
          *std::move(request),
          [state](absl::StatusOr<LookupResponse> response) { state->Answer(response); }));
      return grpc::Status::OK;
    });
    if (!started.ok()) {
      state->Finish(started);
    }
  }

  void OnCancel() override {
    if (DeadlineHasPassed(*context_, start_)) {
      state_->Finish(
          grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "the caller's deadline has passed"));
    } else {
      state_->Abandon();
    }
  }

  void OnDone() override { delete this; }

 private:
  // Outlives the reactor where the tuner calls back late.
  struct State {
    State(Tuner* t, LookupReactor* r, grpc::ByteBuffer* o) : tuner(t), out(o), reactor(r) {}

    void Answer(const absl::StatusOr<LookupResponse>& response) {
      MutexLock lock(mutex);
      if (reactor == nullptr) {
        return;
      }
      FinishLocked(CatchAll("BatchGet", [&] {
        if (!response.ok()) {
          return ToGrpcStatus(response.status(), "environment");
        }
        const EnvironmentInfo environment =
            FindEnvironment(tuner->ListEnvironments(), response->environment.ToText());
        // Thousands of answers are many small messages.
        google::protobuf::Arena arena;
        auto* reply = google::protobuf::Arena::CreateMessage<v1::BatchGetResponse>(&arena);
        Fill(*response, environment, reply);
        return WriteMessage(*reply, out);
      }));
    }

    void Finish(const grpc::Status& status) {
      MutexLock lock(mutex);
      FinishLocked(status);
    }

    void FinishLocked(const grpc::Status& status) REQUIRES(mutex) {
      if (LookupReactor* const call = std::exchange(reactor, nullptr); call != nullptr) {
        call->log_.Finished(status);
        call->Finish(status);
      }
    }

    void SetToken(uint64_t value) {
      {
        MutexLock lock(mutex);
        token = value;
        if (!abandoned) {
          return;
        }
      }
      tuner->AbandonLookup(value);
    }

    void Abandon() {
      uint64_t value = 0;
      {
        MutexLock lock(mutex);
        abandoned = true;
        if (!token.has_value()) {
          return;
        }
        value = *token;
      }
      tuner->AbandonLookup(value);
    }

    Tuner* const tuner;
    grpc::ByteBuffer* const out;  // valid until the call is finished
    Mutex mutex;
    LookupReactor* reactor GUARDED_BY(mutex);  // null once the call is finished
    std::optional<uint64_t> token GUARDED_BY(mutex);
    bool abandoned GUARDED_BY(mutex) = false;
  };

  grpc::CallbackServerContext* const context_;
  const RequestLog log_;
  const system_clock::time_point start_ = system_clock::now();
  const std::shared_ptr<State> state_;
};

}  // namespace

grpc::ServerUnaryReactor* HandleBatchGet(Tuner* tuner, grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* in, grpc::ByteBuffer* out) {
  auto* reactor = new LookupReactor(tuner, context, out);
  reactor->Start(*in);
  return reactor;
}

}  // namespace convtune
