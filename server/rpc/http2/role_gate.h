// Role gates find out a call's role, and refuse calls that take more.
#pragma once

#include <memory>

#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"
#include "server/rpc/http2/access.h"

namespace convtune::rpc::http2 {

// Stands before every call of the credentials that it is given to, of any
// service: PERMISSION_DENIED for one that takes more than the caller's role.
// The first is for connections whose role is known, the second for mutual TLS.
std::shared_ptr<grpc::AuthMetadataProcessor> NewRoleGate(Role role);
std::shared_ptr<grpc::AuthMetadataProcessor> NewCertificateGate(AccessRules rules);

// PERMISSION_DENIED unless the caller has the role: for what a path does not
// tell. Callers that came through no gate are admins.
grpc::Status RequireRole(const grpc::CallbackServerContext& context, Role required,
                         std::string_view what);

}  // namespace convtune::rpc::http2
