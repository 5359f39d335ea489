#include "server/rpc/http2/role_gate.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/strings.h"
#include "proto/monitoring/log.h"
#include "server/rpc/messages/status_mapper.h"

namespace convtune::rpc::http2 {
namespace {

constexpr char kRoleProperty[] = "convtune_role";
constexpr char kWhoProperty[] = "convtune_who";

constexpr absl::Duration kRefusalWindow = absl::Seconds(10);
constexpr int kMostRefusals = 20;  // lines in that time

// Logs a refusal. Who is refused can ask as often as he likes, so a window's lines
// are bounded, and the next window begins with how many there were.
void LogRefusal(std::string_view text) {
  static Mutex mutex;
  static SteadyTime window = SteadyTime::InfinitePast();
  static int64_t refusals = 0;
  int64_t not_logged = 0;
  bool logged = false;
  {
    MutexLock lock(mutex);
    if (const SteadyTime now = SteadyTime::Now(); now - window >= kRefusalWindow) {
      not_logged = refusals - kMostRefusals;
      window = now;
      refusals = 0;
    }
    logged = ++refusals <= kMostRefusals;
  }
  // Outside of the lock: whoever reads the log may be slow.
  if (not_logged > 0) log::Info("$0 more refusals were not logged", not_logged);
  if (logged) log::Info("$0", text);
}

// Logs the refusal, and returns the words for the caller.
std::string Refuse(std::string_view who, std::string_view what, Role required,
                   std::string_view has) {
  const std::string needs = Concat(what, " takes the role ", RoleName(required));
  LogRefusal(Concat(who, " refused: ", needs, ", and has ", has));
  return Concat(needs, ", and this caller has ", has,
                "; roles are given by convtuned --listen and --role");
}

std::vector<std::string> Values(const grpc_auth_context* connection, const char* property) {
  std::vector<std::string> values;
  grpc_auth_property_iterator at = grpc_auth_context_find_properties_by_name(connection, property);
  while (const grpc_auth_property* found = grpc_auth_property_iterator_next(&at)) {
    values.emplace_back(found->value, found->value_length);
  }
  return values;
}

// The names of the client's certificate that roles go by.
std::vector<std::string> NamesOf(const grpc_auth_context* connection) {
  std::vector<std::string> names = Values(connection, GRPC_X509_SAN_PROPERTY_NAME);
  return names.empty() ? Values(connection, GRPC_X509_CN_PROPERTY_NAME) : names;
}

std::string CertificateText(const std::vector<std::string>& names) {
  return Concat("certificate ", absl::StrJoin(names, ", "));
}

// What gRPC and the gate know of the connection that a call came by.
auto ConnectionOf(grpc::CallbackServerContext* context) {
  return std::unique_ptr<grpc_auth_context, decltype(&grpc_auth_context_release)>(
      grpc_call_auth_context(context->c_call()), &grpc_auth_context_release);
}

// Whoever is behind a connection: a role, and words for the log, "certificate
// ops.example".
struct Caller {
  Role role = Role::kNone;
  std::string who;
};
using CallerOf = std::function<Caller(const grpc_auth_context* connection)>;

struct Gate {
  const CallerOf caller_of;
  Mutex mutex;
};

void Process(void* state, grpc_auth_context* context, const grpc_metadata* metadata, size_t count,
             grpc_process_auth_metadata_done_cb done, void* user_data) {
  auto* gate = static_cast<Gate*>(state);
  Caller caller;
  std::string_view has;
  {
    // The context is the connection's: its first call writes the caller, and no
    // handler reads before its own call was here.
    MutexLock lock(gate->mutex);
    caller = gate->caller_of(context);
    has = RoleName(caller.role);
    if (Values(context, kRoleProperty).empty()) {
      grpc_auth_context_add_property(context, kRoleProperty, has.data(), has.size());
      grpc_auth_context_add_property(context, kWhoProperty, caller.who.data(), caller.who.size());
    }
  }
  const auto text = [](const grpc_slice& slice) {
    return std::string_view(reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)),
                            GRPC_SLICE_LENGTH(slice));
  };
  std::string_view path;
  for (size_t i = 0; i < count; ++i) {
    if (text(metadata[i].key) == ":path") path = text(metadata[i].value);
  }
  const Role required = RequiredRole(path);
  const std::string denial = caller.role >= required ? "" : Refuse(caller.who, path, required, has);
  done(user_data, nullptr, 0, nullptr, 0,
       denial.empty() ? GRPC_STATUS_OK : GRPC_STATUS_PERMISSION_DENIED, denial.c_str());
}

class Credentials final : public grpc::ServerCredentials {
 public:
  // Owns `core` from now on. Without `caller_of` there is no gate.
  Credentials(grpc_server_credentials* core, CallerOf caller_of) : core_(core) {
    if (!caller_of) return;
    grpc_server_credentials_set_auth_metadata_processor(
        core_, {&Process, [](void* state) { delete static_cast<Gate*>(state); },
                new Gate{std::move(caller_of), {}}});
  }
  ~Credentials() override { grpc_server_credentials_release(core_); }
  // The gate stands where a processor would.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), core_);
  }

  grpc_server_credentials* const core_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> SocketCredentials(const ListenAddress& address) {
  if (address.role == Role::kAdmin) return grpc::InsecureServerCredentials();
  const auto caller_of = [caller = Caller{address.role, address.ToText()}](
                             const grpc_auth_context*) { return caller; };
  return std::make_shared<Credentials>(grpc_local_server_credentials_create(UDS), caller_of);
}

std::shared_ptr<grpc::ServerCredentials> TlsCredentials(ServerTls* tls,
                                                        const CertificateRoles& roles) {
  if (roles.empty()) return std::make_shared<Credentials>(tls->NewCredentials(), nullptr);
  const auto caller_of = [roles](const grpc_auth_context* connection) {
    const std::vector<std::string> names = NamesOf(connection);
    return Caller{roles.RoleOf(names), CertificateText(names)};
  };
  return std::make_shared<Credentials>(tls->NewCredentials(), caller_of);
}

std::string CertificateOf(grpc::CallbackServerContext* context) {
  const std::vector<std::string> names = NamesOf(ConnectionOf(context).get());
  return names.empty() ? "" : CertificateText(names);
}

grpc::Status RequireRole(grpc::CallbackServerContext* context, Role required,
                         std::string_view what) {
  const auto connection = ConnectionOf(context);
  const std::vector<std::string> role = Values(connection.get(), kRoleProperty);
  if (role.empty() || ParseRole(role[0]).value_or(Role::kNone) >= required) return grpc::Status::OK;
  const std::string who = Values(connection.get(), kWhoProperty).at(0);
  return messages::ToGrpcStatus(absl::PermissionDeniedError(Refuse(who, what, required, role[0])));
}

}  // namespace convtune::rpc::http2
