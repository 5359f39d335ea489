#include <memory>
#include <string>
#include <utility>

#include "convtune/v1/release_service.grpc.pb.h"
#include "server/rpc/messages/release_converter.h"
#include "server/rpc/services/call.h"
#include "server/rpc/services/services.h"

namespace convtune::rpc::services {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

constexpr size_t kMaxReleaseCalls = 64;

// Every method takes its bytes raw: see call.h.
using RawReleaseService = v1::ReleaseService::WithRawCallbackMethod_ListReleases<
    v1::ReleaseService::WithRawCallbackMethod_DiffReleases<
        v1::ReleaseService::WithRawCallbackMethod_PromoteRelease<
            v1::ReleaseService::WithRawCallbackMethod_RollBackRelease<
                v1::ReleaseService::WithRawCallbackMethod_ListWanted<
                    v1::ReleaseService::WithRawCallbackMethod_GetPublication<
                        v1::ReleaseService::Service>>>>>>;

class ReleaseService final : public RawReleaseService {
 public:
  explicit ReleaseService(release::ReleaseManager* releases)
      : releases_(releases), disk_(kMaxReleaseCalls) {}

  ServerUnaryReactor* ListReleases(CallbackServerContext* context, const ByteBuffer* in,
                                   ByteBuffer* out) override {
    return HandleUnary<v1::ListReleasesRequest, v1::ListReleasesResponse>(
        "ListReleases", &disk_, context, in, out,
        [this](const messages::NoArgs&, v1::ListReleasesResponse* reply) {
          *reply = messages::ToProto(releases_->ListReleases());
          return grpc::Status::OK;
        });
  }

  ServerUnaryReactor* DiffReleases(CallbackServerContext* context, const ByteBuffer* in,
                                   ByteBuffer* out) override {
    return HandleUnary<v1::DiffReleasesRequest, v1::DiffReleasesResponse>(
        "DiffReleases", &disk_, context, in, out,
        [this](const messages::DiffArgs& args, v1::DiffReleasesResponse* reply) {
          const absl::StatusOr<release::ReleaseDiff> diff =
              releases_->DiffReleases(args.from, args.to, args.environment, args.max_changes);
          if (diff.ok()) *reply = messages::ToProto(*diff);
          return messages::ToGrpcStatus(diff.status(), "environment");
        });
  }

  ServerUnaryReactor* PromoteRelease(CallbackServerContext* context, const ByteBuffer* in,
                                     ByteBuffer* out) override {
    return HandleUnary<v1::PromoteReleaseRequest, v1::Release>(
        "PromoteRelease", &disk_, context, in, out,
        [this](const messages::PromoteArgs& args, v1::Release* reply) {
          return Fill(releases_->PromoteRelease(args.author, args.reason, args.canary_permille),
                      reply);
        });
  }

  ServerUnaryReactor* RollBackRelease(CallbackServerContext* context, const ByteBuffer* in,
                                      ByteBuffer* out) override {
    return HandleUnary<v1::RollBackReleaseRequest, v1::Release>(
        "RollBackRelease", &disk_, context, in, out,
        [this](const messages::RollBackArgs& args, v1::Release* reply) {
          return Fill(releases_->RollBackRelease(args.author, args.reason, args.release), reply);
        });
  }

  ServerUnaryReactor* ListWanted(CallbackServerContext* context, const ByteBuffer* in,
                                 ByteBuffer* out) override {
    return HandleUnary<v1::ListWantedRequest, v1::ListWantedResponse>(
        "ListWanted", &disk_, context, in, out,
        [this](const messages::ListWantedArgs& args, v1::ListWantedResponse* reply) {
          const auto wanted = releases_->ListWanted(args.environment);
          if (wanted.ok()) *reply = messages::ToProto(*wanted, args.max_problems);
          return messages::ToGrpcStatus(wanted.status(), "environment");
        });
  }

  ServerUnaryReactor* GetPublication(CallbackServerContext* context, const ByteBuffer* in,
                                     ByteBuffer* out) override {
    return HandleUnary<v1::GetPublicationRequest, v1::Publication>(
        "GetPublication", &disk_, context, in, out,
        [this](const messages::NoArgs&, v1::Publication* reply) {
          *reply = messages::ToProto(releases_->Status());
          return grpc::Status::OK;
        });
  }

 private:
  static grpc::Status Fill(const absl::StatusOr<Release>& release, v1::Release* reply) {
    if (release.ok()) *reply = messages::ToProto(*release);
    return messages::ToGrpcStatus(release.status(), "release");
  }

  release::ReleaseManager* const releases_;
  WorkQueue disk_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewReleaseService(release::ReleaseManager* releases) {
  return std::make_unique<ReleaseService>(releases);
}

}  // namespace convtune::rpc::services
