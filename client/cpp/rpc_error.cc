#include "client/cpp/rpc_error.h"

#include <google/rpc/error_details.pb.h>
#include <google/rpc/status.pb.h>

#include "absl/strings/cord.h"

namespace convtune {

std::vector<Violation> ViolationsOf(const absl::Status& status) {
  std::vector<Violation> violations;
  google::rpc::Status details;
  const auto payload = status.GetPayload(kRpcDetailsUrl);
  if (!payload.has_value() || !details.ParseFromString(std::string(*payload))) return violations;
  for (const auto& any : details.details()) {
    google::rpc::BadRequest bad;
    if (!any.Is<google::rpc::BadRequest>() || !any.UnpackTo(&bad)) continue;
    for (const auto& violation : bad.field_violations()) {
      violations.push_back({violation.field(), violation.description()});
    }
  }
  return violations;
}

bool IsFromDaemon(const absl::Status& status) {
  return status.GetPayload(kRpcDetailsUrl).has_value();
}

}  // namespace convtune
