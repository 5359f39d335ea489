// WarmUp loads cuDNN's libraries before there is work.
#pragma once

#include "absl/status/status.h"
#include "server/worker/backend.h"

namespace convtune::worker {

// Asks the heuristics for a small convolution and builds the first plan that can
// be built, so that cuDNN loads its heuristics and engines: time that would be
// missing from the first tuning's budget. Runs nothing. Errors are cuDNN's; the
// backend is none the worse for them.
absl::Status WarmUp(Backend* backend);

}  // namespace convtune::worker
