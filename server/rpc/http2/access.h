// AccessRules say who may call which method: there are three roles, and each may
// do what the ones before it may.
#pragma once

#include <sys/types.h>

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

// The least role for a method by its path, "/convtune.v1.TuningService/Pin";
// kAdmin for one that nobody has put on the list. What BatchGet may do about a
// miss is asked of its handler: OnMiss beyond NONE takes kTune.
Role RequiredRole(std::string_view path);

// Rules of --role. Value type; reads are thread-safe.
class AccessRules {
 public:
  // Each "ROLE=WHO": read, tune or admin; user:NAME, group:NAME (numbers too),
  // cert:IDENTITY, or user:* and cert:* for whoever the transport lets in.
  // INVALID_ARGUMENT names the rule: malformed, or a user or group that the
  // system does not know.
  static absl::StatusOr<AccessRules> Parse(const std::vector<std::string>& texts);

  // Without rules for a transport, whoever it lets in is an admin.
  bool for_sockets() const { return !users_.empty() || !groups_.empty(); }
  bool for_certificates() const { return !certificates_.empty(); }

  // The largest role that a rule gives; kNone if there is none. Root and the
  // daemon's own user, who could write its files, are admins always.
  Role OfPeer(uid_t uid, const std::vector<gid_t>& groups) const;
  // `identities`: the subject's alternative names, or without any its common name.
  Role OfCertificate(const std::vector<std::string>& identities) const;

 private:
  struct IdRule {
    Role role;
    bool any;
    id_t id;
  };
  struct NameRule {
    Role role;
    std::string name;
  };
  std::vector<IdRule> users_;
  std::vector<IdRule> groups_;
  std::vector<NameRule> certificates_;
};

}  // namespace convtune::rpc::http2
