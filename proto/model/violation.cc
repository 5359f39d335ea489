#include "proto/model/violation.h"

#include "absl/strings/cord.h"
#include "proto/base/strings.h"

namespace convtune {
namespace {

constexpr char kFieldUrl[] = "convtune/field";
constexpr size_t kSeparatorBytes = 2;  // of ": "

constexpr char kMissingUrl[] = "convtune/missing";

}  // namespace

std::string ToString(const std::vector<Violation>& violations) {
  std::string out;
  for (const Violation& violation : violations) {
    AppendTo(&out, out.empty() ? "" : "; ", violation.field, ": ", violation.rule);
  }
  return out;
}

absl::Status ViolationError(const Violation& violation) {
  absl::Status status = absl::InvalidArgumentError(ToString({violation}));
  status.SetPayload(kFieldUrl, absl::Cord(violation.field));
  return status;
}

std::optional<Violation> ViolationIn(const absl::Status& status) {
  const auto payload = status.GetPayload(kFieldUrl);
  if (!payload.has_value()) return std::nullopt;
  std::string field(*payload);
  std::string rule(status.message().substr(field.size() + kSeparatorBytes));
  return Violation{std::move(field), std::move(rule)};
}

absl::Status MissingError(const Missing& missing, const std::string& message) {
  absl::Status status = absl::NotFoundError(message);
  status.SetPayload(kMissingUrl, absl::Cord(missing.kind + "\n" + missing.name));
  return status;
}

std::optional<Missing> MissingOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kMissingUrl);
  if (!payload.has_value()) return std::nullopt;
  const std::string text(*payload);
  const size_t end = text.find('\n');
  return Missing{text.substr(0, end), text.substr(end + 1)};
}

}  // namespace convtune
