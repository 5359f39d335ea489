#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/monitoring/log.h"
#include "server/rpc/messages/proto_converter.h"
#include "server/rpc/services/call.h"
#include "server/rpc/services/heard_agent.h"
#include "server/rpc/services/services.h"

namespace convtune::rpc::services {
namespace {

constexpr size_t kMaxFleetCalls = 64;

class FleetService final : public RawService {
 public:
  explicit FleetService(const ServiceOptions& options)
      : RawService(kFleetServiceName), options_(options), disk_(kMaxFleetCalls) {
    Unary<v1::GetFleetStateRequest, v1::FleetState>(
        &disk_, [this](const auto& request, auto* reply) {
          const SteadyTime now = SteadyTime::Now();
          if (!request.observer()) {
            RETURN_IF_ERROR(BeginTurn(request.agent(), now));
            trouble_ = request.trouble();
          }
          ASSIGN_OR_RETURN(*reply, options_.outbox->GetOutboxStatus());
          reply->set_node(options_.node);
          reply->set_refused_agent(agent_.Refused(now));
          reply->set_agent_trouble(trouble_);
          reply->set_outbox_refused(refused_);
          reply->set_last_refused(last_refused_);
          *reply->mutable_agent_silence() = convtune::ToProto(agent_.Silence(now));
          return absl::OkStatus();
        });

    Unary<v1::ReadOutboxRequest, v1::ReadOutboxResponse>(&disk_, [this](const auto& request) {
      agent_.Hear(SteadyTime::Now());
      return options_.outbox->ReadOutbox(
          messages::RowsOf(request.max_rows(), messages::kDefaultOutboxRows),
          messages::kMaxPageBytes);
    });

    Unary<v1::AckOutboxRequest, v1::AckOutboxResponse>(&disk_, [this](const auto& request, auto*) {
      RETURN_IF_ERROR(options_.outbox->AckOutbox(request.ids()));
      refused_ += request.refused_size();
      if (request.refused_size() > 0) last_refused_ = *request.refused().rbegin();
      return absl::OkStatus();
    });

    Unary<v1::RequeueOutboxRequest, v1::RequeueOutboxResponse>(
        &disk_, [this](const auto& request, auto* reply) {
          ASSIGN_OR_RETURN(const int64_t queued,
                           options_.outbox->RequeueOutbox(request.include_fleet()));
          reply->set_queued_count(queued);
          return absl::OkStatus();
        });

    Unary<v1::ApplyTuningsRequest, v1::ApplyTuningsResponse>(
        &disk_, [this](const messages::ApplyTuningsArgs& args, auto* reply) {
          agent_.Hear(SteadyTime::Now());
          size_t given = 0;
          const auto next = [&]() -> absl::StatusOr<std::optional<db::TuningRecord>> {
            if (given == args.records.size()) return std::nullopt;
            return args.records[given++];
          };
          ASSIGN_OR_RETURN(*reply, options_.tuner->ApplyFleetTunings(next));
          reply->mutable_refused()->Assign(args.refused.begin(), args.refused.end());
          return absl::OkStatus();
        });

    Unary<v1::FollowReleaseRequest, v1::FollowReleaseResponse>(
        &disk_,
        [this](const auto& request, auto* reply) {
          if (options_.releases != nullptr) {
            ASSIGN_OR_RETURN(const int64_t made,
                             options_.releases->FollowFleet(request.author(), request.reason()));
            reply->set_node_release(made);
          }
          return options_.outbox->SetFleetRelease(request.release());
        },
        NothingBefore());
  }

 private:
  absl::Status BeginTurn(const std::string& node, SteadyTime now) {
    const std::string before = agent_.Refused(now);
    absl::Status begun = agent_.Begin(node, now);
    if (!begun.ok() && before != node) log::Warn("$0", std::string(begun.message()));
    return begun;
  }

  const ServiceOptions options_;
  // These are used by the one thread of the handlers alone.
  HeardAgent agent_{SteadyTime::Now()};
  std::string trouble_;  // that the agent told last
  int64_t refused_ = 0;
  std::string last_refused_;
  WorkQueue disk_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewFleetService(const ServiceOptions& options) {
  return std::make_unique<FleetService>(options);
}

}  // namespace convtune::rpc::services
