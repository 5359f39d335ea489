// Role gates find out a call's role, and refuse and log calls that take more.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"
#include "server/rpc/http2/access.h"

namespace convtune::rpc::http2 {

// Whoever is behind connections: a role, and words for the log, "user 1000".
struct Caller {
  Role role = Role::kNone;
  std::string who;
};

// Stands before every call of the credentials that it is given to, of any
// service: PERMISSION_DENIED for one that takes more than the caller's role.
// The first is for connections of one caller, who is written there before the first
// of them is given to gRPC, the second for mutual TLS.
std::shared_ptr<grpc::AuthMetadataProcessor> NewRoleGate(std::shared_ptr<const Caller> caller);
std::shared_ptr<grpc::AuthMetadataProcessor> NewCertificateGate(AccessRules rules);

// A line of the log for a refusal. At most 20 in ten seconds, and then how many more
// there were: who is refused can ask as often as he likes. Thread-safe.
void LogRefusal(std::string_view text);

// PERMISSION_DENIED unless the caller has the role: for what a path does not
// tell. Callers that came through no gate are admins.
grpc::Status RequireRole(const grpc::CallbackServerContext& context, Role required,
                         std::string_view what);

}  // namespace convtune::rpc::http2
