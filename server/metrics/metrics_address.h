// The address at which metrics are served.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace convtune::metrics {

// OK for IP:PORT ("127.0.0.1:9464", "[::1]:9464", port 0 for any that is free) and
// for an empty text, which means none. INVALID_ARGUMENT says the rule. Pure function.
absl::Status ValidateMetricsAddress(const std::string& text);

}  // namespace convtune::metrics
