// KindOfXid says what one of the driver's error numbers means for the GPU that it is
// reported of. Pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace convtune::devices {

enum class XidKind {
  kLost,         // nothing more can be run on the GPU before it is reset
  kApplication,  // a program's context is lost, the GPU works
  kNotice        // no context is lost
};

// Of NVIDIA's catalogue of Xids (docs.nvidia.com/deploy/xid-errors: "Analyzing Xid Errors with the
// Xid Catalog"), by its immediate action: RESET_GPU, RESTART_BM and the workflows of 48 and 74 are
// kLost, RESTART_APP is kApplication, as are 43 and 45, which are a program's end. Any other
// number is kNotice: where it needs a reset all the same, the driver says so by its recovery
// action (see NvmlWatch).
XidKind KindOfXid(int64_t xid);

// "Xid 79 (the GPU has fallen off the bus)"; without words for most.
std::string DescribeXid(int64_t xid);

}  // namespace convtune::devices
