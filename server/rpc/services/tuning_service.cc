#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/mutex.h"
#include "proto/base/status_macros.h"
#include "proto/convert/ban_proto.h"
#include "server/rpc/messages/proto_converter.h"
#include "server/rpc/services/batch_get_handler.h"
#include "server/rpc/services/call.h"
#include "server/rpc/services/services.h"

namespace convtune::rpc::services {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;

constexpr size_t kMaxWaitingForDisk = 1000;

// Streams one job's states. Changes that come faster than the caller reads are merged into the
// newest; the last message is always the ended job. Takes no thread, and frees itself.
// gRPC's operations are started under the lock, so that none follows Finish; their
// reactions never run inside the call that started them.
class WatchReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  WatchReactor(tuner::Tuner* tuner, grpc::CallbackServerContext* context)
      : tuner_(tuner), log_("convtune.v1.TuningService/WatchTuningJob", context) {}

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

class TuningService final : public RawService {
 public:
  explicit TuningService(const ServiceOptions& options)
      : RawService(kTuningServiceName),
        tuner_(options.tuner),
        left_out_(options.left_out),
        batch_get_(tuner_),
        disk_(kMaxWaitingForDisk) {
    Add("BatchGet", Type::NORMAL_RPC,
        new UnaryHandler([this](CallbackServerContext* context, const ByteBuffer* in,
                                ByteBuffer* out) { return batch_get_.Handle(context, in, out); }));
    Add("WatchTuningJob", Type::SERVER_STREAMING,
        new ServerStreamingHandler([this](CallbackServerContext* context, const ByteBuffer* in) {
          auto* reactor = new WatchReactor(tuner_, context);
          reactor->Start(*in);
          return reactor;
        }));
    Unary<v1::CreateTuningJobRequest>(
        "CreateTuningJob", nullptr,
        [this](jobs::JobRequest& request) { return tuner_->CreateJob(std::move(request)); });
    Unary<v1::GetTuningJobRequest>(
        "GetTuningJob", nullptr,
        [this](const v1::GetTuningJobRequest& request) { return tuner_->GetJob(request.name()); });
    Unary<v1::ListTuningJobsRequest>(
        "ListTuningJobs", nullptr, [this](const v1::ListTuningJobsRequest& request) {
          return ReplyOf(
              tuner_->ListJobs(messages::PageSizeOf(request.page_size()), request.page_token()));
        });
    Unary<v1::CancelTuningJobRequest>("CancelTuningJob", nullptr,
                                      [this](const v1::CancelTuningJobRequest& request) {
                                        return tuner_->CancelJob(request.name());
                                      });

    Unary<v1::GetTuningRequest>(
        "GetTuning", &disk_,
        [this](const messages::WithProblems<v1::GetTuningRequest>& args)
            -> absl::StatusOr<v1::Tuning> {
          ASSIGN_OR_RETURN(const Tuning tuning,
                           tuner_->GetTuning(args.request.environment(), args.problems[0]));
          v1::Tuning reply = messages::ToProto(
              tuning,
              messages::FindEnvironment(tuner_->ListEnvironments(), tuning.key.environment_text));
          for (const QuarantineEntry& entry : tuner_->QuarantineOf(tuning.key)) {
            *reply.add_quarantine() = messages::ToProto(entry);
          }
          messages::AddBanned(tuning, tuner_->BansOf(tuning.key), &reply);
          return reply;
        });

    Unary<v1::ListTuningsRequest>(
        "ListTunings", nullptr,
        [this](const v1::ListTuningsRequest& request) -> absl::StatusOr<v1::ListTuningsResponse> {
          ASSIGN_OR_RETURN(const TuningKey after, messages::ReadKeyToken(request.page_token()));
          ASSIGN_OR_RETURN(
              const lookup::TuningPage page,
              tuner_->ListTunings(request.environment(), messages::PageSizeOf(request.page_size()),
                                  after, request.text_filter()));
          const std::vector<tuner::EnvironmentInfo> known = tuner_->ListEnvironments();
          const auto make = [&](size_t i) {
            const lookup::IndexedTuning& indexed = *page.tunings[i];
            return messages::ToProto(
                indexed, messages::FindEnvironment(known, indexed.tuning.key.environment_text()));
          };
          v1::ListTuningsResponse reply;
          const size_t rows = page.tunings.size();
          const size_t added = messages::AddRows(rows, make, reply.mutable_tunings());
          if (added < rows || page.more) {
            reply.set_next_page_token(
                messages::KeyToken(page.tunings[added - 1]->tuning.key.Whole()));
          }
          return reply;
        });

    Unary<v1::DeleteTuningRequest>(
        "DeleteTuning", &disk_,
        [this](const messages::WithProblems<v1::DeleteTuningRequest>& args)
            -> absl::StatusOr<v1::DeleteTuningResponse> {
          ASSIGN_OR_RETURN(const int64_t deleted,
                           tuner_->DeleteTunings(args.request.environment(), args.problems,
                                                 args.request.only_from_fleet()));
          v1::DeleteTuningResponse reply;
          reply.set_deleted_count(static_cast<int>(deleted));
          return reply;
        },
        &NothingBefore<messages::WithProblems<v1::DeleteTuningRequest>>);

    const auto pin = [this](const auto& args) {
      return FindPin(args.request.environment(), args.problems[0]);
    };
    Unary<v1::PinRequest>(
        "Pin", &disk_,
        [this](const messages::WithProblems<v1::PinRequest>& args) {
          const v1::PinRequest& request = args.request;
          return ReplyOf(tuner_->PutPin(
              request.environment(), args.problems[0],
              *CandidatePattern::Parse(request.candidate()), request.reason(),
              request.has_ttl() ? std::optional(FromProto(request.ttl())) : std::nullopt,
              request.fleet_pin()));
        },
        pin);
    Unary<v1::UnpinRequest>(
        "Unpin", &disk_,
        [this](const messages::WithProblems<v1::UnpinRequest>& args)
            -> absl::StatusOr<v1::UnpinResponse> {
          RETURN_IF_ERROR(tuner_->DeletePin(args.request.environment(), args.problems[0],
                                            args.request.fleet_pin()));
          return v1::UnpinResponse();
        },
        pin);
    Unary<v1::ListPinsRequest>(
        "ListPins", &disk_,
        [this](const v1::ListPinsRequest& request) -> absl::StatusOr<v1::ListPinsResponse> {
          ASSIGN_OR_RETURN(const std::vector<convtune::Pin> pins,
                           tuner_->ListPins(request.environment()));
          const auto key = [&pins](size_t i) {
            return pins[i].key.environment_text + " " + pins[i].key.problem_text;
          };
          const auto make = [&pins](size_t i) { return messages::ToProto(pins[i]); };
          v1::ListPinsResponse reply;
          RETURN_IF_ERROR(messages::AddPage(
              messages::PageOf(request.page_size(), request.page_token()), pins.size(), key, make,
              reply.mutable_pins(), reply.mutable_next_page_token()));
          return reply;
        });

    Unary<v1::CreateBanRequest>(
        "CreateBan", &disk_,
        [this](messages::CreateBanArgs& args) {
          return tuner_->CreateBan(std::move(args.ban), args.max_changes, args.dry_run);
        },
        &NothingBefore<messages::CreateBanArgs>);
    Unary<v1::DeleteBanRequest>(
        "DeleteBan", &disk_,
        [this](const messages::DeleteBanArgs& args) -> absl::StatusOr<v1::DeleteBanResponse> {
          RETURN_IF_ERROR(tuner_->DeleteBan(args.number, args.fleet_ban));
          return v1::DeleteBanResponse();
        },
        [this](const messages::DeleteBanArgs& args) -> std::optional<v1::Ban> {
          for (v1::Ban& ban : tuner_->ListBans()) {
            if (ban.name() != absl::StrCat("bans/", args.number)) continue;
            ban.clear_tuning_count();
            return std::move(ban);
          }
          return std::nullopt;
        });
    Unary<v1::ListBansRequest>(
        "ListBans", nullptr,
        [this](const v1::ListBansRequest&) -> absl::StatusOr<v1::ListBansResponse> {
          v1::ListBansResponse reply;
          for (v1::Ban& ban : tuner_->ListBans()) *reply.add_bans() = std::move(ban);
          return reply;
        });

    Unary<v1::ListEnvironmentsRequest>(
        "ListEnvironments", nullptr,
        [this](const v1::ListEnvironmentsRequest& request)
            -> absl::StatusOr<v1::ListEnvironmentsResponse> {
          const std::vector<tuner::EnvironmentInfo> known = tuner_->ListEnvironments();
          v1::ListEnvironmentsResponse reply;
          RETURN_IF_ERROR(messages::AddPage(
              messages::PageOf(request.page_size(), request.page_token()), known.size(),
              [&known](size_t i) { return known[i].environment.ToText(); },
              [&known](size_t i) { return messages::ToProto(known[i]); },
              reply.mutable_environments(), reply.mutable_next_page_token()));
          return reply;
        });
    Unary<v1::ListDevicesRequest>(
        "ListDevices", nullptr,
        [this](const v1::ListDevicesRequest&) -> absl::StatusOr<v1::ListDevicesResponse> {
          v1::ListDevicesResponse reply;
          for (v1::Device& device : tuner_->ListDevices()) {
            *reply.add_devices() = std::move(device);
          }
          reply.mutable_left_out()->Assign(left_out_.begin(), left_out_.end());
          return reply;
        });
  }

 private:
  std::optional<v1::PinRecord> FindPin(const std::string& environment, const ConvProblem& problem) {
    const absl::StatusOr<std::vector<convtune::Pin>> pins = tuner_->ListPins(environment);
    if (!pins.ok()) return std::nullopt;
    for (const convtune::Pin& pin : *pins) {
      if (pin.key.problem_text == problem.ToText()) return messages::ToProto(pin);
    }
    return std::nullopt;
  }

  template <typename Model>
  static auto ReplyOf(const absl::StatusOr<Model>& value)
      -> absl::StatusOr<decltype(messages::ToProto(*value))> {
    if (!value.ok()) return value.status();
    return messages::ToProto(*value);
  }

  tuner::Tuner* const tuner_;
  const std::vector<std::string> left_out_;
  BatchGetHandler batch_get_;
  WorkQueue disk_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewTuningService(const ServiceOptions& options) {
  return std::make_unique<TuningService>(options);
}

}  // namespace convtune::rpc::services
