#include "server/rpc/http2/role_gate.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grpc/grpc_security_constants.h"
#include "proto/base/mutex.h"
#include "proto/base/strings.h"
#include "server/logging/log.h"
#include "server/rpc/messages/status_mapper.h"

namespace convtune::rpc::http2 {
namespace {

constexpr char kRoleProperty[] = "convtune_role";

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

class RoleGate : public grpc::AuthMetadataProcessor {
 public:
  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* /*consumed*/, OutputMetadata* /*response*/) override {
    const Role role = RoleOf(*context);
    {
      // The context is the connection's: its first call writes the role, and no
      // handler reads before its own call was here.
      MutexLock lock(mutex_);
      if (context->FindPropertyValues(kRoleProperty).empty()) {
        const std::string_view name = RoleName(role);
        context->AddProperty(kRoleProperty, grpc::string_ref(name.data(), name.size()));
      }
    }
    const auto found = metadata.find(":path");
    const std::string_view path =
        found == metadata.end() ? std::string_view()
                                : std::string_view(found->second.data(), found->second.size());
    const Role required = RequiredRole(path);
    if (role >= required) return grpc::Status::OK;
    log::Info("$0 refused: it takes the role $1, and the caller has $2", path, RoleName(required),
              RoleName(role));
    return grpc::Status(grpc::StatusCode::PERMISSION_DENIED,
                        Denial(path, required, RoleName(role)));
  }

 private:
  virtual Role RoleOf(const grpc::AuthContext& context) const = 0;

  Mutex mutex_;
};

class FixedGate final : public RoleGate {
 public:
  explicit FixedGate(Role role) : role_(role) {}

 private:
  Role RoleOf(const grpc::AuthContext& /*context*/) const override { return role_; }

  const Role role_;
};

class CertificateGate final : public RoleGate {
 public:
  explicit CertificateGate(AccessRules rules) : rules_(std::move(rules)) {}

 private:
  Role RoleOf(const grpc::AuthContext& context) const override {
    return rules_.OfCertificate(Identities(context));
  }

  const AccessRules rules_;
};

}  // namespace

std::shared_ptr<grpc::AuthMetadataProcessor> NewRoleGate(Role role) {
  return std::make_shared<FixedGate>(role);
}

std::shared_ptr<grpc::AuthMetadataProcessor> NewCertificateGate(AccessRules rules) {
  return std::make_shared<CertificateGate>(std::move(rules));
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
  return messages::ToGrpcStatus(absl::PermissionDeniedError(Denial(what, required, names.front())));
}

}  // namespace convtune::rpc::http2
