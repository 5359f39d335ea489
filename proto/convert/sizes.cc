#include "proto/convert/sizes.h"

#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/model/text.h"

namespace convtune {
namespace {

constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();
constexpr size_t kMaxBrackets = 32;
constexpr size_t kMaxTextBytes = 4096;  // as of a text without brackets

absl::StatusOr<int64_t> OneSize(std::string_view text) {
  int64_t size = 0;
  RETURN_IF_ERROR(ReadInt64(Strip(text), &size));
  if (size < 0 || size > kMaxSize) {
    return absl::InvalidArgumentError(Concat("must be from 0 to 2^31-1, is ", size));
  }
  return size;
}

// The name of the last token of `text`, which has no brackets.
std::string TokenName(std::string_view text) {
  const std::string_view token = text.substr(text.rfind(',') + 1);
  const size_t equals = token.find('=');
  return equals == std::string_view::npos ? "text" : std::string(Strip(token.substr(0, equals)));
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> ParseSizes(std::string_view text) {
  std::vector<int64_t> sizes;
  for (const std::string_view part : Split(text, ',')) {
    const size_t dots = part.find("..");
    ASSIGN_OR_RETURN(const int64_t first, OneSize(part.substr(0, dots)));
    int64_t last = first;
    int64_t step = 1;
    if (dots != std::string_view::npos) {
      const std::string_view range = part.substr(dots + 2);
      const size_t slash = range.find('/');
      ASSIGN_OR_RETURN(last, OneSize(range.substr(0, slash)));
      if (slash != std::string_view::npos) {
        ASSIGN_OR_RETURN(step, OneSize(range.substr(slash + 1)));
      }
      if (step < 1 || last < first) {
        return absl::InvalidArgumentError(
            Concat("must go up in steps from 1, is ", Quote(Strip(part))));
      }
    }
    for (int64_t size = first; size <= last; size += step) {
      if (sizes.size() == kMaxExpansions) {
        return absl::InvalidArgumentError(Concat("must be at most ", kMaxExpansions, " sizes"));
      }
      sizes.push_back(size);
    }
  }
  return sizes;
}

absl::StatusOr<std::vector<std::string>> ExpandSizes(std::string_view text) {
  if (text.find_first_of("[]") == std::string_view::npos) return {{std::string(text)}};
  if (text.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(
        Concat("text: must be at most ", kMaxTextBytes, " bytes, has ", text.size()));
  }
  // What the text stands for up to here, each with the size of its last bracket.
  std::vector<std::pair<std::string, int64_t>> so_far = {{"", 0}};
  for (size_t brackets = 0;; ++brackets) {
    const size_t begin = text.find_first_of("[]");
    for (auto& [one, last] : so_far) AppendTo(&one, text.substr(0, begin));
    if (begin == std::string_view::npos) break;
    const auto refuse = [&](std::string_view rule) {
      return absl::InvalidArgumentError(Concat(TokenName(so_far[0].first), ": ", rule));
    };
    const size_t end = text.find_first_of("[]", begin + 1);
    if (text[begin] == ']' || end == std::string_view::npos || text[end] == '[') {
      return refuse("brackets must come in pairs, one behind the other");
    }
    if (brackets == kMaxBrackets) {
      return refuse(Concat("must be one of at most ", kMaxBrackets, " brackets"));
    }
    const std::string_view inside = Strip(text.substr(begin + 1, end - begin - 1));
    text.remove_prefix(end + 1);
    if (inside == "=") {
      if (brackets == 0) return refuse("[=] must have a bracket with sizes before it");
      for (auto& [one, last] : so_far) AppendTo(&one, last);
      continue;
    }
    const absl::StatusOr<std::vector<int64_t>> sizes = ParseSizes(inside);
    if (!sizes.ok()) return refuse(std::string(sizes.status().message()));
    if (so_far.size() * sizes->size() > kMaxExpansions) {
      return refuse(Concat("must stand for at most ", kMaxExpansions, " problems"));
    }
    std::vector<std::pair<std::string, int64_t>> longer;
    for (const auto& [one, last] : so_far) {
      for (const int64_t size : *sizes) longer.emplace_back(Concat(one, size), size);
    }
    so_far = std::move(longer);
  }
  std::vector<std::string> texts;
  for (auto& [one, last] : so_far) texts.push_back(std::move(one));
  return texts;
}

}  // namespace convtune
