// Length-delimited messages over a socket that blocks: a 4-byte little-endian
// length, then that many bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace convtune {

// Largest message, in bytes, without its length.
inline constexpr size_t kMaxFrameBytes = size_t{64} << 20;

// Sends one message and returns when all of it is written; blocks while the
// peer does not read. Raises no SIGPIPE. INVALID_ARGUMENT if the
// message is too long, OUT_OF_RANGE if the peer is gone, INTERNAL on other
// errors. One writer at a time per descriptor.
absl::Status WriteFrame(int fd, std::string_view message);

// Receives one message. DEADLINE_EXCEEDED if it is not whole by `deadline`
// (what had arrived is lost: close the descriptor), OUT_OF_RANGE if the peer
// closed between messages, DATA_LOSS if it closed within one or announced one
// that is too long, INTERNAL on other errors. One reader at a time per
// descriptor.
absl::StatusOr<std::string> ReadFrame(int fd, SteadyTime deadline);

}  // namespace convtune
