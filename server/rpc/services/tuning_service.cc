#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/convert/ban_proto.h"
#include "server/lookup/tuning_index.h"
#include "server/rpc/messages/page.h"
#include "server/rpc/messages/proto_converter.h"
#include "server/rpc/services/batch_get_handler.h"
#include "server/rpc/services/call.h"
#include "server/rpc/services/services.h"
#include "server/rpc/services/watch_call.h"

namespace convtune::rpc::services {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;

constexpr size_t kMaxWaitingForDisk = 1000;

class TuningService final : public RawService {
 public:
  explicit TuningService(tuner::Tuner* tuner)
      : RawService(kTuningServiceName),
        tuner_(tuner),
        batch_get_(tuner),
        disk_(kMaxWaitingForDisk) {
    Add("BatchGet", Type::NORMAL_RPC,
        new UnaryHandler([this](CallbackServerContext* context, const ByteBuffer* in,
                                ByteBuffer* out) { return batch_get_.Handle(context, in, out); }));
    Add("WatchTuningJob", Type::SERVER_STREAMING,
        new ServerStreamingHandler([this](CallbackServerContext* context, const ByteBuffer* in) {
          return HandleWatchTuningJob(tuner_, context, in);
        }));
    Unary<v1::CreateTuningJobRequest, v1::TuningJob>(
        "CreateTuningJob", nullptr, [this](jobs::JobRequest& request, v1::TuningJob* reply) {
          return Fill(tuner_->CreateJob(std::move(request)), reply);
        });

    Unary<v1::GetTuningJobRequest, v1::TuningJob>(
        "GetTuningJob", nullptr,
        [this](const v1::GetTuningJobRequest& request, v1::TuningJob* reply) {
          return Fill(tuner_->GetJob(request.name()), reply);
        });

    Unary<v1::ListTuningJobsRequest, v1::ListTuningJobsResponse>(
        "ListTuningJobs", nullptr,
        [this](const messages::ListJobsArgs& args, v1::ListTuningJobsResponse* reply) {
          return Fill(tuner_->ListJobs(args.page_size, args.page_token), reply);
        });

    Unary<v1::CancelTuningJobRequest, v1::TuningJob>(
        "CancelTuningJob", nullptr,
        [this](const v1::CancelTuningJobRequest& request, v1::TuningJob* reply) {
          return Fill(tuner_->CancelJob(request.name()), reply);
        });

    Unary<v1::GetTuningRequest, v1::Tuning>(
        "GetTuning", &disk_, [this](const messages::OneProblemArgs& args, v1::Tuning* reply) {
          const absl::StatusOr<Tuning> tuning = tuner_->GetTuning(args.environment, args.problem);
          if (tuning.ok()) {
            *reply =
                messages::ToProto(*tuning, messages::FindEnvironment(tuner_->ListEnvironments(),
                                                                     tuning->key.environment_text));
            for (const QuarantineEntry& entry : tuner_->QuarantineOf(tuning->key)) {
              *reply->add_quarantine() = messages::ToProto(entry);
            }
            messages::AddBanned(*tuning, tuner_->BansOf(tuning->key), reply);
          }
          return messages::ToGrpcStatus(tuning.status());
        });

    Unary<v1::ListTuningsRequest, v1::ListTuningsResponse>(
        "ListTunings", nullptr,
        [this](const messages::ListTuningsArgs& args, v1::ListTuningsResponse* reply) {
          const absl::StatusOr<tuner::TuningPage> page = tuner_->ListTunings(
              args.environment, args.page_size, args.page_token, args.text_filter);
          if (page.ok()) {
            const std::vector<tuner::EnvironmentInfo> known = tuner_->ListEnvironments();
            const auto make = [&](size_t i) {
              const tuner::TuningSummary& summary = page->tunings[i];
              return messages::ToProto(
                  summary, messages::FindEnvironment(known, summary.key.environment_text));
            };
            const size_t rows = page->tunings.size();
            const size_t added = messages::AddRows(rows, make, reply->mutable_tunings());
            reply->set_next_page_token(
                added == rows ? page->next_page_token
                              : lookup::TuningIndex::PageTokenOf(page->tunings[added - 1].key));
          }
          return messages::ToGrpcStatus(page.status());
        });

    Unary<v1::DeleteTuningRequest, v1::DeleteTuningResponse>(
        "DeleteTuning", &disk_,
        [this](const messages::DeleteTuningArgs& args, v1::DeleteTuningResponse* reply) {
          const absl::StatusOr<int64_t> deleted =
              args.only_from_fleet ? tuner_->WithdrawFleetTunings(args.environment, args.problems)
                                   : tuner_->DeleteTunings(args.environment, args.problems);
          reply->set_deleted_count(static_cast<int>(deleted.value_or(0)));
          return messages::ToGrpcStatus(deleted.status());
        });

    Unary<v1::PinRequest, v1::PinRecord>(
        "Pin", &disk_, [this](const messages::PinArgs& args, v1::PinRecord* reply) {
          const absl::StatusOr<convtune::Pin> pin =
              tuner_->PutPin(args.environment, args.problem, args.candidate, args.reason, args.ttl,
                             args.fleet_pin);
          if (pin.ok()) {
            *reply = messages::ToProto(*pin, EnvironmentName(pin->key));
          }
          return messages::ToGrpcStatus(pin.status());
        });

    Unary<v1::UnpinRequest, v1::UnpinResponse>(
        "Unpin", &disk_, [this](const messages::UnpinArgs& args, v1::UnpinResponse*) {
          return messages::ToGrpcStatus(
              tuner_->DeletePin(args.problem.environment, args.problem.problem, args.fleet_pin));
        });

    Unary<v1::ListPinsRequest, v1::ListPinsResponse>(
        "ListPins", &disk_,
        [this](const messages::EnvironmentPageArgs& args, v1::ListPinsResponse* reply) {
          const absl::StatusOr<std::vector<convtune::Pin>> pins =
              tuner_->ListPins(args.environment);
          if (!pins.ok()) return messages::ToGrpcStatus(pins.status());
          const auto key = [&pins](size_t i) {
            return (*pins)[i].key.environment_text + " " + (*pins)[i].key.problem_text;
          };
          const auto make = [&pins](size_t i) {
            return messages::ToProto((*pins)[i], EnvironmentName((*pins)[i].key));
          };
          return messages::ToGrpcStatus(messages::AddPage(args.page, pins->size(), key, make,
                                                          reply->mutable_pins(),
                                                          reply->mutable_next_page_token()));
        });

    Unary<v1::CreateBanRequest, v1::CreateBanResponse>(
        "CreateBan", &disk_, [this](messages::CreateBanArgs& args, v1::CreateBanResponse* reply) {
          return Fill(tuner_->CreateBan(std::move(args.ban), args.max_changes, args.dry_run),
                      reply);
        });

    Unary<v1::DeleteBanRequest, v1::DeleteBanResponse>(
        "DeleteBan", &disk_, [this](const messages::DeleteBanArgs& args, v1::DeleteBanResponse*) {
          return messages::ToGrpcStatus(tuner_->DeleteBan(args.number, args.fleet_ban));
        });

    Unary<v1::ListBansRequest, v1::ListBansResponse>(
        "ListBans", nullptr, [this](const v1::ListBansRequest&, v1::ListBansResponse* reply) {
          for (const tuner::ListedBan& listed : tuner_->ListBans()) {
            v1::Ban& ban = *reply->add_bans();
            ban = convtune::ToProto(listed.ban);
            ban.set_tuning_count(listed.tuning_count);
          }
          return grpc::Status::OK;
        });

    Unary<v1::ListEnvironmentsRequest, v1::ListEnvironmentsResponse>(
        "ListEnvironments", nullptr,
        [this](const messages::PageArgs& page, v1::ListEnvironmentsResponse* reply) {
          const std::vector<tuner::EnvironmentInfo> known = tuner_->ListEnvironments();
          return messages::ToGrpcStatus(messages::AddPage(
              page, known.size(), [&known](size_t i) { return known[i].environment.ToText(); },
              [&known](size_t i) { return messages::ToProto(known[i]); },
              reply->mutable_environments(), reply->mutable_next_page_token()));
        });

    Unary<v1::ListDevicesRequest, v1::ListDevicesResponse>(
        "ListDevices", nullptr,
        [this](const v1::ListDevicesRequest&, v1::ListDevicesResponse* reply) {
          for (const supervisor::DeviceStatus& device : tuner_->ListDevices()) {
            *reply->add_devices() = messages::ToProto(device);
          }
          return grpc::Status::OK;
        });
  }

 private:
  template <typename Model, typename Reply>
  static grpc::Status Fill(const absl::StatusOr<Model>& value, Reply* reply) {
    if (value.ok()) {
      *reply = messages::ToProto(*value);
    }
    return messages::ToGrpcStatus(value.status());
  }

  static std::string EnvironmentName(const TuningKey& key) {
    return Environment::Parse(key.environment_text).value_or(Environment()).Name();
  }

  tuner::Tuner* const tuner_;
  BatchGetHandler batch_get_;
  WorkQueue disk_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewTuningService(tuner::Tuner* tuner) {
  return std::make_unique<TuningService>(tuner);
}

}  // namespace convtune::rpc::services
