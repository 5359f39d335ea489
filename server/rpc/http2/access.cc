#include "server/rpc/http2/access.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/base/strings.h"

namespace convtune::rpc::http2 {
namespace {

constexpr size_t kNameBuffer = 64 << 10;

constexpr std::pair<std::string_view, Role> kMethods[] = {
    {"/convtune.v1.TuningService/BatchGet", Role::kRead},
    {"/convtune.v1.TuningService/CreateTuningJob", Role::kTune},
    {"/convtune.v1.TuningService/GetTuningJob", Role::kRead},
    {"/convtune.v1.TuningService/ListTuningJobs", Role::kRead},
    {"/convtune.v1.TuningService/WatchTuningJob", Role::kRead},
    {"/convtune.v1.TuningService/CancelTuningJob", Role::kTune},
    {"/convtune.v1.TuningService/GetTuning", Role::kRead},
    {"/convtune.v1.TuningService/ListTunings", Role::kRead},
    {"/convtune.v1.TuningService/DeleteTuning", Role::kAdmin},
    {"/convtune.v1.TuningService/Pin", Role::kAdmin},
    {"/convtune.v1.TuningService/Unpin", Role::kAdmin},
    {"/convtune.v1.TuningService/ListPins", Role::kRead},
    {"/convtune.v1.TuningService/CreateBan", Role::kAdmin},
    {"/convtune.v1.TuningService/DeleteBan", Role::kAdmin},
    {"/convtune.v1.TuningService/ListBans", Role::kRead},
    {"/convtune.v1.TuningService/ListEnvironments", Role::kRead},
    {"/convtune.v1.TuningService/ListDevices", Role::kRead},
    {"/convtune.v1.MaintenanceService/GetServerInfo", Role::kRead},
    {"/convtune.v1.MaintenanceService/CheckDatabase", Role::kAdmin},
    {"/convtune.v1.MaintenanceService/BackupDatabase", Role::kAdmin},
    {"/convtune.v1.MaintenanceService/CompactDatabase", Role::kAdmin},
    {"/convtune.v1.ReleaseService/ListReleases", Role::kRead},
    {"/convtune.v1.ReleaseService/DiffReleases", Role::kRead},
    {"/convtune.v1.ReleaseService/PromoteRelease", Role::kAdmin},
    {"/convtune.v1.ReleaseService/RollBackRelease", Role::kAdmin},
    {"/convtune.v1.ReleaseService/ListWanted", Role::kRead},
    {"/convtune.v1.ReleaseService/GetPublication", Role::kRead},
    {"/convtune.v1.ReleaseService/ReadSnapshot", Role::kRead},
    {"/convtune.v1.BundleService/ExportBundle", Role::kRead},
    {"/convtune.v1.BundleService/ImportBundle", Role::kAdmin},
    // The agent speaks for the node.
    {"/convtune.v1.FleetService/GetFleetState", Role::kAdmin},
    {"/convtune.v1.FleetService/ReadOutbox", Role::kAdmin},
    {"/convtune.v1.FleetService/AckOutbox", Role::kAdmin},
    {"/convtune.v1.FleetService/RequeueOutbox", Role::kAdmin},
    {"/convtune.v1.FleetService/ApplyTunings", Role::kAdmin},
    {"/convtune.v1.FleetService/FollowRelease", Role::kAdmin},
    // Probes of whoever can connect.
    {"/grpc.health.v1.Health/Check", Role::kNone},
    {"/grpc.health.v1.Health/Watch", Role::kNone},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Role::kRead},
};

std::optional<Role> ParseRole(std::string_view text) {
  for (const Role role : {Role::kRead, Role::kTune, Role::kAdmin}) {
    if (text == RoleName(role)) return role;
  }
  return std::nullopt;
}

std::optional<id_t> ParseNumber(const std::string& text) {
  uint32_t number = 0;
  // -1 is what the system calls "no user".
  return absl::SimpleAtoi(text, &number) && number != UINT32_MAX ? std::optional<id_t>(number)
                                                                 : std::nullopt;
}

std::optional<id_t> FindUser(const std::string& name) {
  std::vector<char> buffer(kNameBuffer);
  passwd entry{};
  passwd* found = nullptr;
  getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
  return found != nullptr ? std::optional<id_t>(found->pw_uid) : ParseNumber(name);
}

std::optional<id_t> FindGroup(const std::string& name) {
  std::vector<char> buffer(kNameBuffer);
  group entry{};
  group* found = nullptr;
  getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
  return found != nullptr ? std::optional<id_t>(found->gr_gid) : ParseNumber(name);
}

}  // namespace

std::string_view RoleName(Role role) {
  constexpr std::array<std::string_view, 4> kNames = {"none", "read", "tune", "admin"};
  return kNames[static_cast<size_t>(role)];
}

Role RequiredRole(std::string_view path) {
  for (const auto& [method, role] : kMethods) {
    if (method == path) return role;
  }
  return Role::kAdmin;
}

absl::StatusOr<AccessRules> AccessRules::Parse(const std::vector<std::string>& texts) {
  AccessRules rules;
  for (const std::string& text : texts) {
    const auto refuse = [&text](std::string_view rule) {
      return absl::InvalidArgumentError(Concat("role: ", rule, ", is \"", text, "\""));
    };
    std::string_view rest = text;
    const size_t equals = rest.find('=');
    const std::optional<Role> role = ParseRole(rest.substr(0, equals));
    if (equals == std::string_view::npos || !role.has_value()) {
      return refuse("must begin with read=, tune= or admin=");
    }
    rest.remove_prefix(equals + 1);
    if (ConsumeFront(&rest, "user:") && !rest.empty()) {
      const bool any = rest == "*";
      const std::optional<id_t> id = any ? 0 : FindUser(std::string(rest));
      if (!id.has_value()) return refuse("must name a user of this system, or a number");
      rules.users_.push_back({*role, any, *id});
    } else if (ConsumeFront(&rest, "group:") && !rest.empty()) {
      const std::optional<id_t> id = FindGroup(std::string(rest));
      if (!id.has_value()) return refuse("must name a group of this system, or a number");
      rules.groups_.push_back({*role, false, *id});
    } else if (ConsumeFront(&rest, "cert:") && !rest.empty()) {
      rules.certificates_.push_back({*role, std::string(rest)});
    } else {
      return refuse("must give the role to user:NAME, group:NAME or cert:IDENTITY");
    }
  }
  return rules;
}

Role AccessRules::OfPeer(uid_t uid, const std::vector<gid_t>& groups) const {
  if (!for_sockets() || uid == 0 || uid == geteuid()) return Role::kAdmin;
  Role role = Role::kNone;
  for (const IdRule& rule : users_) {
    if (rule.any || rule.id == uid) role = std::max(role, rule.role);
  }
  for (const IdRule& rule : groups_) {
    if (std::find(groups.begin(), groups.end(), rule.id) != groups.end()) {
      role = std::max(role, rule.role);
    }
  }
  return role;
}

Role AccessRules::OfCertificate(const std::vector<std::string>& identities) const {
  if (!for_certificates()) return Role::kAdmin;
  Role role = Role::kNone;
  for (const NameRule& rule : certificates_) {
    if (rule.name == "*" ||
        std::find(identities.begin(), identities.end(), rule.name) != identities.end()) {
      role = std::max(role, rule.role);
    }
  }
  return role;
}

}  // namespace convtune::rpc::http2
