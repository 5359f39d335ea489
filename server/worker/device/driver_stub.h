// The driver stub stands in for libcuda.so.1 where there is no driver: cuDNN 9.27
// and later plan for a profile only where some libcuda.so.1 is loaded.
#pragma once

#include "absl/status/status.h"

namespace convtune::worker::device {

// Loads the stub into this process, for its life, unless a libcuda.so.1 can be
// loaded. The stub is never a file that another program could find: its bytes are part
// of the worker. To be called before cuDNN loads its libraries. INTERNAL with
// the reason if it cannot be loaded. Thread-safe, idempotent.
absl::Status LoadDriverStub();

}  // namespace convtune::worker::device
