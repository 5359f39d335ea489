// A Role says what a caller may do. Each role may also do what the roles before it may.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace convtune::rpc::http2 {

enum class Role {
  kNone = 0,   // health alone
  kRead = 1,   // looks up, lists, watches, exports
  kTune = 2,   // spends the GPU's time: tunings, heuristics, cancels
  kAdmin = 3,  // changes or removes what is kept and what is served
};

std::string_view RoleName(Role role);
// "read", "tune" or "admin"; nullopt for anything else.
std::optional<Role> ParseRole(std::string_view text);

// The least role for a method by its path, "/convtune.v1.TuningService/Pin";
// kAdmin for one that nobody has put on the list. What BatchGet may do about a
// miss is asked of its handler: OnMiss beyond NONE takes kTune.
Role RequiredRole(std::string_view path);

// CertificateRoles give roles to clients of mutual TLS by the names in their
// certificates. Value type; reads are thread-safe.
class CertificateRoles {
 public:
  // The texts of --role, each "ROLE=cert:IDENTITY", or "ROLE=cert:*" for every
  // certificate. INVALID_ARGUMENT names the rule that is malformed.
  static absl::StatusOr<CertificateRoles> Parse(const std::vector<std::string>& texts);

  // Without rules, whoever the transport lets in is an admin.
  bool empty() const { return rules_.empty(); }

  // The largest role that a rule gives; kNone if there is none. `identities`: the
  // subject's alternative names, or without any its common name.
  Role RoleOf(const std::vector<std::string>& identities) const;

 private:
  struct Rule {
    Role role;
    std::string name;
  };
  std::vector<Rule> rules_;
};

}  // namespace convtune::rpc::http2
