#include "server/rpc/services/watch_call.h"

#include <memory>
#include <optional>
#include <utility>

#include "proto/base/mutex.h"
#include "server/rpc/messages/proto_converter.h"
#include "server/rpc/services/call.h"

namespace convtune::rpc::services {
namespace {

class WatchReactor : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  WatchReactor(tuner::Tuner* tuner, grpc::CallbackServerContext* context)
      : log_("WatchTuningJob", context), state_(std::make_shared<State>(tuner, this)) {}

  void Start(const grpc::ByteBuffer& in) {
    const std::shared_ptr<State> state = state_;
    const ScopedRequestId scope(log_.request_id());
    std::optional<v1::WatchTuningJobRequest> request;
    const grpc::Status started = CatchAll("WatchTuningJob", [&] {
      const grpc::Status read = ReadRequest<v1::WatchTuningJobRequest>(in, &request);
      if (!read.ok()) {
        return read;
      }
      const absl::StatusOr<uint64_t> token = state->tuner->WatchJob(
          request->name(), [state](const jobs::JobSnapshot& job) { state->Changed(job); });
      if (!token.ok()) {
        return messages::ToGrpcStatus(token.status());
      }
      state->SetToken(*token);
      return grpc::Status::OK;
    });
    if (!started.ok()) {
      state->Finish(started);
    }
  }

  void OnWriteDone(bool ok) override { state_->Written(ok); }

  void OnCancel() override {
    state_->Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the caller went away"));
  }

  void OnDone() override {
    state_->Done();
    delete this;
  }

 private:
  // Outlives the reactor where the tuner calls back late. gRPC's operations are
  // started under the lock, so that none follows Finish; their reactions never
  // run inside the call that started them.
  struct State {
    State(tuner::Tuner* t, WatchReactor* r) : tuner(t), reactor(r) {}

    void Changed(const jobs::JobSnapshot& job) {
      MutexLock lock(mutex);
      if (reactor != nullptr) {
        newest = job;
        WriteLocked();
      }
    }

    void Written(bool ok) {
      MutexLock lock(mutex);
      writing = false;
      if (!ok) {
        FinishLocked(grpc::Status(grpc::StatusCode::CANCELLED, "the caller went away"));
      } else if (newest.has_value()) {
        WriteLocked();
      } else if (ended) {
        FinishLocked(grpc::Status::OK);
      }
    }

    void Finish(const grpc::Status& status) {
      MutexLock lock(mutex);
      FinishLocked(status);
    }

    void SetToken(uint64_t value) {
      {
        MutexLock lock(mutex);
        token = value;
        if (!done) {
          return;
        }
      }
      tuner->StopWatching(value);
    }

    void Done() {
      uint64_t value = 0;
      {
        MutexLock lock(mutex);
        done = true;
        if (!token.has_value()) {
          return;
        }
        value = *token;
      }
      tuner->StopWatching(value);
    }

    void WriteLocked() REQUIRES(mutex) {
      if (writing || reactor == nullptr) {
        return;
      }
      const jobs::JobSnapshot job = *std::exchange(newest, std::nullopt);
      ended = job.ended();
      if (job.interrupted) {
        FinishLocked(messages::ToGrpcStatus(absl::UnavailableError(
            "the daemon is draining: the job did not end; what it tuned is kept")));
        return;
      }
      const grpc::Status status = CatchAll(
          "WatchTuningJob", [&] { return WriteMessage(messages::ToProto(job), &message); });
      if (!status.ok()) {
        FinishLocked(status);
        return;
      }
      writing = true;
      reactor->StartWrite(&message);
    }

    void FinishLocked(const grpc::Status& status) REQUIRES(mutex) {
      if (WatchReactor* const call = std::exchange(reactor, nullptr); call != nullptr) {
        call->log_.Finished(status);
        call->Finish(status);
      }
    }

    tuner::Tuner* const tuner;
    Mutex mutex;
    WatchReactor* reactor GUARDED_BY(mutex);  // null once the call is finished
    std::optional<jobs::JobSnapshot> newest GUARDED_BY(mutex);
    grpc::ByteBuffer message GUARDED_BY(mutex);  // gRPC's while `writing`
    bool writing GUARDED_BY(mutex) = false;
    bool ended GUARDED_BY(mutex) = false;
    bool done GUARDED_BY(mutex) = false;
    std::optional<uint64_t> token GUARDED_BY(mutex);
  };

  const RequestLog log_;
  const std::shared_ptr<State> state_;
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* HandleWatchTuningJob(
    tuner::Tuner* tuner, grpc::CallbackServerContext* context, const grpc::ByteBuffer* in) {
  auto* reactor = new WatchReactor(tuner, context);
  reactor->Start(*in);
  return reactor;
}

}  // namespace convtune::rpc::services
