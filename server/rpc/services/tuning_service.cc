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
class WatchReactor final : public SharedCall<grpc::ServerWriteReactor<grpc::ByteBuffer>> {
 public:
  WatchReactor(tuner::Tuner* tuner, grpc::CallbackServerContext* context)
      : SharedCall({"convtune.v1.TuningService/WatchTuningJob", context}), tuner_(tuner) {}

  // Returns before OnDone is called.
  void Start(const grpc::ByteBuffer& in) {
    const ScopedRequestId scope(log_.request_id());
    std::optional<v1::WatchTuningJobRequest> request;
    const grpc::Status started = CatchAll("WatchTuningJob", [&] {
      grpc::Status read = ReadRequest<v1::WatchTuningJobRequest>(in, &request);
      if (!read.ok()) return read;
      const absl::StatusOr<uint64_t> token = tuner_->jobs().Watch(
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
    tuner_->jobs().StopWatching(token());  // and no callback comes any more
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
    if (writing_ || ended_) return;
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

  tuner::Tuner* const tuner_;
  std::optional<v1::TuningJob> newest_ GUARDED_BY(mutex_);
  bool interrupted_ GUARDED_BY(mutex_) = false;  // of newest_; see JobCallback
  grpc::ByteBuffer message_ GUARDED_BY(mutex_);  // gRPC's while `writing_`
  bool writing_ GUARDED_BY(mutex_) = false;
  bool job_ended_ GUARDED_BY(mutex_) = false;
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
    Unary<v1::CreateTuningJobRequest, v1::TuningJob>(
        nullptr, [this](const auto& request) { return tuner_->CreateJob(request); });
    Unary<v1::GetTuningJobRequest, v1::TuningJob>(
        nullptr, [this](const auto& request) { return tuner_->jobs().Get(request.name()); });
    Unary<v1::ListTuningJobsRequest, v1::ListTuningJobsResponse>(nullptr, [this](auto& request,
                                                                                 auto* reply) {
      request.set_page_size(messages::PageSizeOf(request.page_size()));
      const auto key = [](const v1::TuningJob& job) { return job.name(); };
      return messages::AddPage(request, tuner_->jobs().List(), key, reply->mutable_jobs(), reply);
    });
    Unary<v1::CancelTuningJobRequest, v1::TuningJob>(
        nullptr, [this](const auto& request) { return tuner_->jobs().Cancel(request.name()); });

    Unary<v1::GetTuningRequest, v1::Tuning>(&disk_, [this](const auto& args, auto* reply) {
      ASSIGN_OR_RETURN(const Tuning tuning,
                       tuner_->GetTuning(args.request.environment(), args.problems[0]));
      *reply = messages::ToProto(tuning, messages::FindEnvironment(tuner_->ListEnvironments(),
                                                                   tuning.key.environment_text));
      for (const auto& [candidate, entry] : tuner_->QuarantineOf(tuning.key)) {
        *reply->add_quarantine() = messages::ToProto(entry);
      }
      messages::AddBanned(tuning, tuner_->BansOf(tuning.key), reply);
      return absl::OkStatus();
    });

    Unary<v1::ListTuningsRequest, v1::ListTuningsResponse>(nullptr, [this](const auto& request,
                                                                           auto* reply) {
      ASSIGN_OR_RETURN(const TuningKey after, messages::ReadKeyToken(request.page_token()));
      ASSIGN_OR_RETURN(
          const lookup::TuningPage page,
          tuner_->ListTunings(request.environment(), messages::PageSizeOf(request.page_size()),
                              after, request.text_filter()));
      const std::vector<v1::Environment> known = tuner_->ListEnvironments();
      const auto make = [&](size_t i) {
        const lookup::IndexedTuning& indexed = *page.tunings[i];
        return messages::ToProto(
            indexed, messages::FindEnvironment(known, indexed.tuning.key.environment_text()));
      };
      const size_t rows = page.tunings.size();
      const size_t added = messages::AddRows(rows, make, reply->mutable_tunings());
      if (added < rows || page.more) {
        reply->set_next_page_token(messages::KeyToken(page.tunings[added - 1]->tuning.key.Whole()));
      }
      return absl::OkStatus();
    });

    Unary<v1::DeleteTuningRequest, v1::DeleteTuningResponse>(
        &disk_,
        [this](const auto& args, auto* reply) {
          ASSIGN_OR_RETURN(const int64_t deleted,
                           tuner_->DeleteTunings(args.request.environment(), args.problems,
                                                 args.request.only_from_fleet()));
          reply->set_deleted_count(static_cast<int>(deleted));
          return absl::OkStatus();
        },
        NothingBefore());

    const auto pin = [this](const auto& args) {
      return FindPin(args.request.environment(), args.problems[0]);
    };
    Unary<v1::PinRequest, v1::PinRecord>(
        &disk_,
        [this](const auto& args, auto* reply) {
          const v1::PinRequest& request = args.request;
          ASSIGN_OR_RETURN(
              const convtune::Pin put,
              tuner_->PutPin(
                  request.environment(), args.problems[0],
                  *CandidatePattern::Parse(request.candidate()), request.reason(),
                  request.has_ttl() ? std::optional(FromProto(request.ttl())) : std::nullopt,
                  request.fleet_pin()));
          *reply = messages::ToProto(put);
          return absl::OkStatus();
        },
        pin);
    Unary<v1::UnpinRequest, v1::UnpinResponse>(
        &disk_,
        [this](const auto& args, auto*) {
          return tuner_->DeletePin(args.request.environment(), args.problems[0],
                                   args.request.fleet_pin());
        },
        pin);
    Unary<v1::ListPinsRequest, v1::ListPinsResponse>(
        &disk_, [this](const auto& request, auto* reply) {
          ASSIGN_OR_RETURN(const std::vector<convtune::Pin> pins,
                           tuner_->ListPins(request.environment()));
          const auto key = [](const convtune::Pin& row) { return messages::KeyText(row.key); };
          return messages::AddPage(request, pins, key, reply->mutable_pins(), reply);
        });

    Unary<v1::CreateBanRequest, v1::CreateBanResponse>(
        &disk_,
        [this](auto& args) {
          return tuner_->CreateBan(std::move(args.ban), args.max_changes, args.dry_run);
        },
        NothingBefore());
    Unary<v1::DeleteBanRequest, v1::DeleteBanResponse>(
        &disk_,
        [this](const auto& args, auto*) { return tuner_->DeleteBan(args.number, args.fleet_ban); },
        [this](const auto& args) -> std::optional<v1::Ban> {
          for (v1::Ban& ban : tuner_->ListBans()) {
            if (ban.name() != absl::StrCat("bans/", args.number)) continue;
            ban.clear_tuning_count();
            return std::move(ban);
          }
          return std::nullopt;
        });
    Unary<v1::ListBansRequest, v1::ListBansResponse>(nullptr, [this](const auto&, auto* reply) {
      for (v1::Ban& ban : tuner_->ListBans()) *reply->add_bans() = std::move(ban);
      return absl::OkStatus();
    });

    Unary<v1::ListEnvironmentsRequest, v1::ListEnvironmentsResponse>(
        nullptr, [this](const auto& request, auto* reply) {
          const auto key = [](const v1::Environment& row) { return row.text(); };
          return messages::AddPage(request, tuner_->ListEnvironments(), key,
                                   reply->mutable_environments(), reply);
        });
    Unary<v1::ListDevicesRequest, v1::ListDevicesResponse>(
        nullptr, [this](const auto&, auto* reply) {
          for (v1::Device& device : tuner_->ListDevices()) {
            *reply->add_devices() = std::move(device);
          }
          reply->mutable_left_out()->Assign(left_out_.begin(), left_out_.end());
          return absl::OkStatus();
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
