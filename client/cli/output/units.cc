#include "client/cli/output/units.h"

#include <cmath>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/clock.h"
#include "proto/base/errors.h"
#include "proto/model/enums.h"

namespace convtune::cli::output {
absl::StatusOr<absl::Duration> ParseTime(const std::string& field, const std::string& text,
                                         absl::Duration least, absl::Duration most) {
  const std::optional<absl::Duration> time = ParseDuration(text);
  if (!time || *time <= absl::ZeroDuration() || *time == absl::InfiniteDuration()) {
    return InvalidArgument(field, ": must be a positive time such as 500ms, 1h30m or 30d, is '",
                           text, "'");
  }
  if (*time < least || *time > most) {
    return InvalidArgument(
        field, ": must be ",
        most == absl::InfiniteDuration()
            ? absl::StrCat("at least ", absl::FormatDuration(least))
            : absl::StrCat(least > absl::ZeroDuration()
                               ? absl::StrCat("from ", absl::FormatDuration(least), " to ")
                               : "at most ",
                           absl::FormatDuration(most)),
        ", is '", text, "'");
  }
  return *time;
}

absl::StatusOr<int> ParsePermille(const std::string& field, const std::string& text) {
  const bool percent = absl::EndsWith(text, "%");
  double share = 0;
  const bool number = absl::SimpleAtod(percent ? text.substr(0, text.size() - 1) : text, &share);
  const double permille = share * (percent ? 10 : 1000);
  if (!number || !(permille >= 1 && permille <= 999)) {
    return InvalidArgument(field, ": must be a share from 0.1% to 99.9% such as 5% or 0.05, is '",
                           text, "'");
  }
  return static_cast<int>(std::lround(permille));
}

std::string FormatBytes(int64_t bytes) {
  if (bytes == 0) return "0";
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (value < 1023.95) break;
    value /= 1024;
    unit = next;
  }
  if (std::abs(value - std::round(value)) < 0.05) return absl::StrFormat("%.0f %s", value, unit);
  return absl::StrFormat("%.1f %s", value, unit);
}

std::string FormatBytesChange(int64_t from, int64_t to) {
  const std::string before = FormatBytes(from);
  std::string after = FormatBytes(to);
  if (before != after) return absl::StrCat(before, " > ", after);
  if (from == to) return after;
  return absl::StrCat(before, to > from ? " +" : " -", FormatBytes(std::abs(to - from)));
}

std::string FormatMicroseconds(double us) {
  if (!(us > 0)) return "-";
  if (us < 99.95) return absl::StrFormat("%.1f us", us);
  if (us < 999.5) return absl::StrFormat("%.0f us", us);
  return absl::StrFormat("%.2f ms", us / 1000);
}

std::string FormatShare(std::optional<double> share) {
  return share ? absl::StrFormat("%.1f%%", 100 * *share) : "-";
}

std::string Counted(int64_t count, const std::string& one, const std::string& several) {
  return absl::StrCat(count, " ", count == 1 || several.empty() ? one : several,
                      count == 1 || !several.empty() ? "" : "s");
}

std::string FormatAge(absl::Duration age) {
  const int64_t seconds = absl::ToInt64Seconds(age);
  if (seconds < 120) return absl::StrCat(seconds, " s");
  if (seconds < 2 * 3600) return absl::StrCat(seconds / 60, " min");
  if (seconds < 2 * 86400) return absl::StrCat(seconds / 3600, " h");
  return absl::StrCat(seconds / 86400, " d");
}

std::string FormatTimestamp(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%SZ", time, absl::UTCTimeZone());
}

std::string FormatTimestamp(const google::protobuf::Timestamp& time) {
  return FormatTimestamp(absl::FromUnixSeconds(time.seconds()));
}

std::string EnumWord(const google::protobuf::EnumDescriptor& descriptor, int number, char between) {
  const std::string word = convtune::EnumWord(descriptor, number, between);
  return word.empty() ? "unknown" : word;
}

}  // namespace convtune::cli::output
