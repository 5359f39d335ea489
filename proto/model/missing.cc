#include "proto/model/missing.h"

#include "absl/strings/cord.h"

namespace convtune {
namespace {

constexpr char kMissingUrl[] = "convtune/missing";

}  // namespace

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
