#include "server/rpc/lookup_call.h"

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "grpcpp/support/slice.h"
#include "proto/base/mutex.h"
#include "server/rpc/access.h"
#include "server/rpc/call.h"
#include "server/rpc/role_gate.h"

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

// `response`: see BatchAnswerer::EnvironmentOf.
grpc::Status WriteBatch(const BatchAnswerer& answerer, const Batch& batch,
                        const lookup::LookupResponse* response, grpc::ByteBuffer* out) {
  const std::string environment = answerer.EnvironmentOf(batch, response);
  const BatchReply reply(&batch.rows, environment, answerer.Now());
  return WriteReply(
      reply.size(), [&reply](uint8_t* bytes) { reply.WriteTo(bytes); }, out);
}

// Reads the request into `*batch`, as far as it takes with what is ready.
grpc::Status ReadBatch(const grpc::ByteBuffer& in, BatchAnswerer* answerer, Batch* batch) {
  grpc::Slice bytes;
  grpc::ByteBuffer shared = in;
  if (shared.Valid() &&
      (shared.TrySingleSlice(&bytes).ok() || shared.DumpToSingleSlice(&bytes).ok())) {
    std::optional<Batch> prepared = answerer->Prepare(
        std::string_view(reinterpret_cast<const char*>(bytes.begin()), bytes.size()));
    if (prepared.has_value()) {
      *batch = *std::move(prepared);
      return grpc::Status::OK;
    }
  }
  std::optional<lookup::LookupRequest> request;
  grpc::Status read = ReadRequest<v1::BatchGetRequest>(in, &request);
  if (read.ok()) *batch = BatchAnswerer::Whole(*std::move(request));
  return read;
}

lookup::OnMiss OnMissOf(const Batch& batch) {
  return batch.complete() ? batch.context->request.on_miss : batch.missing.on_miss;
}

// A call that needs the tuner.
class LookupReactor : public grpc::ServerUnaryReactor {
 public:
  LookupReactor(tuner::Tuner* tuner, BatchAnswerer* answerer, grpc::CallbackServerContext* context,
                RequestLog log, Batch batch, grpc::ByteBuffer* out)
      : context_(context),
        log_(std::move(log)),
        state_(std::make_shared<State>(tuner, answerer, std::move(batch), this, out)) {}

  void Start() {
    const std::shared_ptr<State> state = state_;
    const grpc::Status started = CatchAll("BatchGet", [&] {
      state->SetToken(state->tuner->Lookup(
          std::move(state->batch.missing),
          [state](absl::StatusOr<lookup::LookupResponse> response) { state->Answer(response); }));
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
    State(tuner::Tuner* t, BatchAnswerer* a, Batch b, LookupReactor* r, grpc::ByteBuffer* o)
        : tuner(t), answerer(a), out(o), batch(std::move(b)), reactor(r) {}

    void Answer(const absl::StatusOr<lookup::LookupResponse>& response) {
      MutexLock lock(mutex);
      if (reactor == nullptr) {
        return;
      }
      FinishLocked(CatchAll("BatchGet", [&] {
        if (!response.ok()) {
          return ToGrpcStatus(response.status(), "environment");
        }
        answerer->Complete(*response, &batch);
        return WriteBatch(*answerer, batch, &*response, out);
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

    tuner::Tuner* const tuner;
    BatchAnswerer* const answerer;
    grpc::ByteBuffer* const out;  // valid until the call is finished
    Batch batch;                  // whoever answers has it for itself
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

grpc::ServerUnaryReactor* HandleBatchGet(tuner::Tuner* tuner, BatchAnswerer* answerer,
                                         grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* in, grpc::ByteBuffer* out) {
  RequestLog log("BatchGet", context);
  const ScopedRequestId scope(log.request_id());
  Batch batch;
  grpc::Status status = CatchAll("BatchGet", [&] {
    grpc::Status read = ReadBatch(*in, answerer, &batch);
    return read.ok() && OnMissOf(batch) != lookup::OnMiss::kNone
               ? RequireRole(*context, Role::kTune, "on_miss: anything but NONE")
               : read;
  });
  if (status.ok() && !batch.complete()) {
    auto* reactor = new LookupReactor(tuner, answerer, context, log, std::move(batch), out);
    reactor->Start();
    return reactor;
  }
  if (status.ok()) {
    status = CatchAll("BatchGet", [&] { return WriteBatch(*answerer, batch, nullptr, out); });
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  log.Finished(status);
  reactor->Finish(status);
  return reactor;
}

}  // namespace convtune
