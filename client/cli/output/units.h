// Reads and writes sizes, times and enums as people do.
#pragma once

#include <google/protobuf/generated_enum_reflection.h>
#include <google/protobuf/timestamp.pb.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace convtune::cli::output {

// Reads "500ms", "1h30m", "30d": a positive, finite time from `least` to `most`. INVALID_ARGUMENT
// names `field` and the rule.
absl::StatusOr<absl::Duration> ParseTime(const std::string& field, const std::string& text,
                                         absl::Duration least = absl::ZeroDuration(),
                                         absl::Duration most = absl::InfiniteDuration());
// Reads a part of a whole, "5%" or "0.05", in thousandths: 1 to 999. INVALID_ARGUMENT as above.
absl::StatusOr<int> ParsePermille(const std::string& field, const std::string& text);

// "0", "512 B", "1.5 MiB".
std::string FormatBytes(int64_t bytes);
// "0 > 131 B"; "4.6 MiB +131 B" where both round alike; "4.6 MiB" where they are equal.
std::string FormatBytesChange(int64_t from, int64_t to);
// "12.3 us" below a millisecond, else "1.23 ms"; "-" for 0.
std::string FormatMicroseconds(double us);
// 0.412 as "41.2%"; "-" for what is not known.
std::string FormatShare(std::optional<double> share);
// "1 tuning", "2 tunings"; `several` is what follows any other number than 1, where that is not
// `one` with an "s": "1 ban holds", "2 bans hold".
std::string Counted(int64_t count, const std::string& one, const std::string& several = "");
// "45 s", "3 min", "5 h", "12 d".
std::string FormatAge(absl::Duration age);
// UTC, "2025-01-31 12:00:00Z".
std::string FormatTimestamp(absl::Time time);
std::string FormatTimestamp(const google::protobuf::Timestamp& time);

// MISS_REASON_NOT_FOUND as "not found", with `between` for the spaces; "unknown" for a number
// that this program does not know.
std::string EnumWord(const google::protobuf::EnumDescriptor& descriptor, int number, char between);
template <typename Enum>
std::string EnumWord(Enum value, char between = ' ') {
  return EnumWord(*google::protobuf::GetEnumDescriptor<Enum>(), value, between);
}

}  // namespace convtune::cli::output
