// A role gate stands before every call of a server's connections: it finds out the
// caller's role, and refuses and logs calls that take more.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"
#include "server/rpc/http2/access.h"
#include "server/rpc/http2/listen_address.h"
#include "server/rpc/http2/server_tls.h"

namespace convtune::rpc::http2 {

// Credentials whose gate stands before every service's methods: PERMISSION_DENIED for a call
// that takes more than its caller's role. A caller has the role of the socket, or the one that the
// names in its certificate give it. Where all are admins there is no gate: it would cost every call
// a little.
std::shared_ptr<grpc::ServerCredentials> SocketCredentials(const ListenAddress& address);
std::shared_ptr<grpc::ServerCredentials> TlsCredentials(ServerTls* tls,
                                                        const CertificateRoles& roles);

// PERMISSION_DENIED unless the caller has the role: for what a path does not
// tell. The error names it in the words `what`. Callers that came through no gate are admins.
grpc::Status RequireRole(grpc::CallbackServerContext* context, Role required,
                         std::string_view what);

// "certificate ops.example", by the names that CertificateRoles look at; empty for a caller without
// a certificate.
std::string CertificateOf(grpc::CallbackServerContext* context);

}  // namespace convtune::rpc::http2
