#include "server/rpc/http2/access.h"

#include <algorithm>
#include <array>
#include <utility>

#include "proto/base/strings.h"

namespace convtune::rpc::http2 {
namespace {

// All others take an admin.
constexpr std::pair<std::string_view, Role> kMethods[] = {
    {"/convtune.v1.TuningService/BatchGet", Role::kRead},
    {"/convtune.v1.TuningService/CreateTuningJob", Role::kTune},
    {"/convtune.v1.TuningService/GetTuningJob", Role::kRead},
    {"/convtune.v1.TuningService/ListTuningJobs", Role::kRead},
    {"/convtune.v1.TuningService/WatchTuningJob", Role::kRead},
    {"/convtune.v1.TuningService/CancelTuningJob", Role::kTune},
    {"/convtune.v1.TuningService/GetTuning", Role::kRead},
    {"/convtune.v1.TuningService/ListTunings", Role::kRead},
    {"/convtune.v1.TuningService/ListPins", Role::kRead},
    {"/convtune.v1.TuningService/ListBans", Role::kRead},
    {"/convtune.v1.TuningService/ListEnvironments", Role::kRead},
    {"/convtune.v1.TuningService/ListDevices", Role::kRead},
    {"/convtune.v1.MaintenanceService/GetServerInfo", Role::kRead},
    {"/convtune.v1.ReleaseService/ListReleases", Role::kRead},
    {"/convtune.v1.ReleaseService/DiffReleases", Role::kRead},
    {"/convtune.v1.ReleaseService/ListWanted", Role::kRead},
    {"/convtune.v1.ReleaseService/GetPublication", Role::kRead},
    {"/convtune.v1.ReleaseService/ReadSnapshot", Role::kRead},
    {"/convtune.v1.BundleService/ExportBundle", Role::kRead},
    // Probes of whoever can connect.
    {"/grpc.health.v1.Health/Check", Role::kNone},
    {"/grpc.health.v1.Health/Watch", Role::kNone},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Role::kRead},
    // The daemon does not serve v1: UNIMPLEMENTED has clients fall back to v1alpha.
    {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Role::kRead},
};

}  // namespace

std::string_view RoleName(Role role) {
  constexpr std::array<std::string_view, 4> kNames = {"none", "read", "tune", "admin"};
  return kNames[static_cast<size_t>(role)];
}

std::optional<Role> ParseRole(std::string_view text) {
  for (const Role role : {Role::kRead, Role::kTune, Role::kAdmin}) {
    if (text == RoleName(role)) return role;
  }
  return std::nullopt;
}

Role RequiredRole(std::string_view path) {
  for (const auto& [method, role] : kMethods) {
    if (method == path) return role;
  }
  return Role::kAdmin;
}

absl::StatusOr<CertificateRoles> CertificateRoles::Parse(const std::vector<std::string>& texts) {
  CertificateRoles roles;
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
    if (!ConsumeFront(&rest, "cert:") || rest.empty()) {
      return refuse(
          "must give the role to cert:IDENTITY; users get theirs from --listen ROLE=unix:PATH");
    }
    roles.rules_.push_back({*role, std::string(rest)});
  }
  return roles;
}

Role CertificateRoles::RoleOf(const std::vector<std::string>& identities) const {
  if (empty()) return Role::kAdmin;
  Role role = Role::kNone;
  for (const Rule& rule : rules_) {
    if (rule.name == "*" ||
        std::find(identities.begin(), identities.end(), rule.name) != identities.end()) {
      role = std::max(role, rule.role);
    }
  }
  return role;
}

}  // namespace convtune::rpc::http2
