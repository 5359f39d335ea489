#include "client/cpp/rpc_error.h"

#include <google/rpc/error_details.pb.h>
#include <google/rpc/status.pb.h>

#include <algorithm>
#include <string_view>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace convtune::client {

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

std::vector<std::pair<size_t, std::string>> RefusedProblems(const absl::Status& status,
                                                            size_t count) {
  constexpr std::string_view kField = "problems[";
  std::vector<std::pair<size_t, std::string>> refused;
  for (const Violation& violation : ViolationsOf(status)) {
    const std::string& field = violation.field;
    const size_t end = std::min(field.find(']'), field.size());
    size_t place = count;
    if (!field.starts_with(kField) || end == field.size() ||
        !absl::SimpleAtoi(field.substr(kField.size(), end - kField.size()), &place) ||
        place >= count) {
      return {};
    }
    refused.emplace_back(place, absl::StrCat(violation.field, ": ", violation.rule));
  }
  return refused;
}

bool IsFromDaemon(const absl::Status& status) {
  return status.GetPayload(kRpcDetailsUrl).has_value();
}

}  // namespace convtune::client
