// cuDNN's libraries, loaded before there is work.
#pragma once

#include "absl/status/status.h"
#include "server/worker/backend.h"

namespace convtune {

// Lists a small convolution and builds a plan of each kind of engine, so that
// cuDNN loads its heuristics and its engines, which takes a second or more from
// a cold disk: time that would be missing from the first tuning's budget. Runs
// nothing. Errors are cuDNN's; the backend is none the worse for them.
absl::Status WarmUp(Backend* backend);

}  // namespace convtune
