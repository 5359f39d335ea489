// Errors whose message is made of parts, as Concat takes them.
#pragma once

#include "absl/status/status.h"
#include "proto/base/strings.h"

namespace convtune {

template <typename... Parts>
absl::Status InvalidArgument(const Parts&... parts) {
  return absl::InvalidArgumentError(Concat(parts...));
}

template <typename... Parts>
absl::Status FailedPrecondition(const Parts&... parts) {
  return absl::FailedPreconditionError(Concat(parts...));
}

}  // namespace convtune
