// A role gate stands before every call of a server's connections: it finds out the
// caller's role, and refuses and logs calls that take more.
#pragma once

#include <grpc/grpc_security.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"
#include "server/rpc/http2/access.h"

namespace convtune::rpc::http2 {

// Whoever is behind a connection: a role, and words for the log, "certificate
// ops.example".
struct Caller {
  Role role = Role::kNone;
  std::string who;
};
using CallerOf = std::function<Caller(const grpc_auth_context* connection)>;

// The caller by the names in its certificate.
Caller CallerByCertificate(const CertificateRoles& roles, const grpc_auth_context* connection);

// These credentials, which are owned from now on, with a gate for every service's
// methods: PERMISSION_DENIED for a call that takes more than its caller's role. Without
// `caller_of` there is no gate.
std::shared_ptr<grpc::ServerCredentials> WithGate(grpc_server_credentials* credentials,
                                                  CallerOf caller_of);

// PERMISSION_DENIED unless the caller has the role: for what a path does not
// tell. Callers that came through no gate are admins.
grpc::Status RequireRole(const grpc::CallbackServerContext& context, Role required,
                         std::string_view what);

// "certificate ops.example", by the names that CertificateRoles look at; empty for a caller without
// a certificate.
std::string CertificateOf(const grpc::CallbackServerContext& context);

}  // namespace convtune::rpc::http2
