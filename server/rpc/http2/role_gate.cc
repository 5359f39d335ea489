#include "server/rpc/http2/role_gate.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpc/grpc_security_constants.h"
#include "proto/base/mutex.h"
#include "proto/base/strings.h"
#include "server/logging/log.h"
#include "server/rpc/messages/status_mapper.h"

namespace convtune::rpc::http2 {
namespace {

constexpr char kRoleProperty[] = "convtune_role";
constexpr char kWhoProperty[] = "convtune_who";

constexpr absl::Duration kRefusalWindow = absl::Seconds(10);
constexpr int kMostRefusals = 20;  // lines in that time

std::string Denial(std::string_view what, Role required, std::string_view has) {
  return Concat(what, " takes the role ", RoleName(required), ", and this caller has ", has,
                "; roles are given by convtuned --role");
}

std::vector<std::string> Values(const grpc::AuthContext& context, const char* property) {
  std::vector<std::string> values;
  for (const grpc::string_ref& value : context.FindPropertyValues(property)) {
    values.emplace_back(value.data(), value.size());
  }
  return values;
}

std::vector<std::string> Identities(const grpc::AuthContext& context) {
  std::vector<std::string> names = Values(context, GRPC_X509_SAN_PROPERTY_NAME);
  return names.empty() ? Values(context, GRPC_X509_CN_PROPERTY_NAME) : names;
}

std::string LogLine(std::string_view who, std::string_view what, Role required,
                    std::string_view has) {
  return Concat(who, " refused: ", what, " takes the role ", RoleName(required), ", and has ", has);
}

class RoleGate : public grpc::AuthMetadataProcessor {
 public:
  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* /*consumed*/, OutputMetadata* /*response*/) override {
    const Caller caller = CallerOf(*context);
    const std::string_view has = RoleName(caller.role);
    {
      // The context is the connection's: its first call writes the caller, and no
      // handler reads before its own call was here.
      MutexLock lock(mutex_);
      if (context->FindPropertyValues(kRoleProperty).empty()) {
        context->AddProperty(kRoleProperty, grpc::string_ref(has.data(), has.size()));
        context->AddProperty(kWhoProperty, caller.who);
      }
    }
    const auto found = metadata.find(":path");
    const std::string_view path =
        found == metadata.end() ? std::string_view()
                                : std::string_view(found->second.data(), found->second.size());
    const Role required = RequiredRole(path);
    if (caller.role >= required) return grpc::Status::OK;
    LogRefusal(LogLine(caller.who, path, required, has));
    return grpc::Status(grpc::StatusCode::PERMISSION_DENIED, Denial(path, required, has));
  }

 private:
  virtual Caller CallerOf(const grpc::AuthContext& context) const = 0;

  Mutex mutex_;
};

class KnownCallerGate final : public RoleGate {
 public:
  explicit KnownCallerGate(std::shared_ptr<const Caller> caller) : caller_(std::move(caller)) {}

 private:
  Caller CallerOf(const grpc::AuthContext& /*context*/) const override { return *caller_; }

  const std::shared_ptr<const Caller> caller_;
};

class CertificateGate final : public RoleGate {
 public:
  explicit CertificateGate(AccessRules rules) : rules_(std::move(rules)) {}

 private:
  Caller CallerOf(const grpc::AuthContext& context) const override {
    const std::vector<std::string> names = Identities(context);
    return {rules_.OfCertificate(names), Concat("certificate ", absl::StrJoin(names, ", "))};
  }

  const AccessRules rules_;
};

}  // namespace

std::shared_ptr<grpc::AuthMetadataProcessor> NewRoleGate(std::shared_ptr<const Caller> caller) {
  return std::make_shared<KnownCallerGate>(std::move(caller));
}

std::shared_ptr<grpc::AuthMetadataProcessor> NewCertificateGate(AccessRules rules) {
  return std::make_shared<CertificateGate>(std::move(rules));
}

void LogRefusal(std::string_view text) {
  static Mutex mutex;
  static absl::Time window = absl::InfinitePast();
  static int64_t refusals = 0;
  int64_t unsaid = 0;
  bool say = false;
  {
    MutexLock lock(mutex);
    const absl::Time now = absl::Now();
    if (now - window >= kRefusalWindow) {
      unsaid = std::max<int64_t>(0, refusals - kMostRefusals);
      window = now;
      refusals = 0;
    }
    say = ++refusals <= kMostRefusals;
  }
  if (unsaid > 0) log::Info("$0 more refusals were not logged", unsaid);
  if (say) log::Info("$0", text);
}

grpc::Status RequireRole(const grpc::CallbackServerContext& context, Role required,
                         std::string_view what) {
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();
  if (peer == nullptr) return grpc::Status::OK;
  const std::vector<std::string> names = Values(*peer, kRoleProperty);
  if (names.empty()) return grpc::Status::OK;
  for (Role role = required; role <= Role::kAdmin; role = Role(static_cast<int>(role) + 1)) {
    if (names.front() == RoleName(role)) return grpc::Status::OK;
  }
  const std::vector<std::string> who = Values(*peer, kWhoProperty);
  LogRefusal(LogLine(who.empty() ? "" : who.front(), what, required, names.front()));
  return messages::ToGrpcStatus(absl::PermissionDeniedError(Denial(what, required, names.front())));
}

}  // namespace convtune::rpc::http2
