#include "server/rpc/services/watch_call.h"

#include <optional>
#include <utility>

#include "proto/base/mutex.h"
#include "server/rpc/messages/proto_converter.h"
#include "server/rpc/services/call.h"

namespace convtune::rpc::services {
namespace {

// gRPC's operations are started under the lock, so that none follows Finish; their
// reactions never run inside the call that started them.
class WatchReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  WatchReactor(tuner::Tuner* tuner, grpc::CallbackServerContext* context)
      : tuner_(tuner), log_("WatchTuningJob", context) {}

  // Returns before OnDone is called.
  void Start(const grpc::ByteBuffer& in) {
    const ScopedRequestId scope(log_.request_id());
    std::optional<v1::WatchTuningJobRequest> request;
    const grpc::Status started = CatchAll("WatchTuningJob", [&] {
      grpc::Status read = ReadRequest<v1::WatchTuningJobRequest>(in, &request);
      if (!read.ok()) return read;
      const absl::StatusOr<uint64_t> token = tuner_->WatchJob(
          request->name(),
          [this](const v1::TuningJob& job, bool interrupted) { Changed(job, interrupted); });
      MutexLock lock(mutex_);
      token_ = token.value_or(0);
      return messages::ToGrpcStatus(token.status());
    });
    if (!started.ok()) End(started);
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(mutex_);
    writing_ = false;
    if (!ok) {
      EndLocked(grpc::Status(grpc::StatusCode::CANCELLED, "the caller went away"));
    } else if (newest_.has_value()) {
      WriteLocked();
    } else if (job_ended_) {
      EndLocked(grpc::Status::OK);
    }
  }

  void OnCancel() override {
    End(grpc::Status(grpc::StatusCode::CANCELLED, "the caller went away"));
  }

  void OnDone() override {
    uint64_t token = 0;
    {
      MutexLock lock(mutex_);
      token = token_;
    }
    tuner_->StopWatching(token);  // and no callback comes any more
    delete this;
  }

 private:
  void Changed(const v1::TuningJob& job, bool interrupted) {
    MutexLock lock(mutex_);
    newest_ = job;
    interrupted_ = interrupted;
    WriteLocked();
  }

  void WriteLocked() REQUIRES(mutex_) {
    if (writing_ || call_ended_) return;
    const v1::TuningJob job = *std::exchange(newest_, std::nullopt);
    job_ended_ = jobs::HasEnded(job);
    if (interrupted_) {
      EndLocked(messages::ToGrpcStatus(absl::UnavailableError(
          "the daemon is draining: the job did not end; what it tuned is kept")));
      return;
    }
    const grpc::Status written =
        CatchAll("WatchTuningJob", [&] { return WriteMessage(job, &message_); });
    if (!written.ok()) {
      EndLocked(written);
      return;
    }
    writing_ = true;
    StartWrite(&message_);
  }

  void End(const grpc::Status& status) {
    MutexLock lock(mutex_);
    EndLocked(status);
  }

  void EndLocked(const grpc::Status& status) REQUIRES(mutex_) {
    if (std::exchange(call_ended_, true)) return;
    log_.Finished(status);
    Finish(status);
  }

  tuner::Tuner* const tuner_;
  const RequestLog log_;
  Mutex mutex_;
  bool call_ended_ GUARDED_BY(mutex_) = false;
  std::optional<v1::TuningJob> newest_ GUARDED_BY(mutex_);
  bool interrupted_ GUARDED_BY(mutex_) = false;  // of newest_; see JobCallback
  grpc::ByteBuffer message_ GUARDED_BY(mutex_);  // gRPC's while `writing_`
  bool writing_ GUARDED_BY(mutex_) = false;
  bool job_ended_ GUARDED_BY(mutex_) = false;
  uint64_t token_ GUARDED_BY(mutex_) = 0;  // 0: nothing is watched
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* HandleWatchTuningJob(
    tuner::Tuner* tuner, grpc::CallbackServerContext* context, const grpc::ByteBuffer* in) {
  auto* reactor = new WatchReactor(tuner, context);
  reactor->Start(*in);
  return reactor;
}

}  // namespace convtune::rpc::services
