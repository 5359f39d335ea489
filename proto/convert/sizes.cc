#include "proto/convert/sizes.h"

#include <limits>

#include "absl/status/status.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/model/text.h"

namespace convtune {
namespace {

constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();
// As many problems as a request may have.
constexpr size_t kMaxBrackets = 32;
// As in a text without brackets.
constexpr size_t kMaxTextBytes = 4096;

absl::StatusOr<int64_t> OneSize(std::string_view text) {
  int64_t size = 0;
  RETURN_IF_ERROR(ReadInt64(Strip(text), &size));
  if (size < 0 || size > kMaxSize) {
    return absl::InvalidArgumentError(Concat("must be from 0 to 2^31-1, is ", size));
  }
  return size;
}

// The name of the token that ends in `text`, which has no brackets.
std::string TokenName(std::string_view text) {
  const std::string_view token = text.substr(text.rfind(',') + 1);
  const size_t equals = token.find('=');
  return equals == std::string_view::npos ? "text" : std::string(Strip(token.substr(0, equals)));
}

// A text with its brackets taken out: pieces[i], then the sizes in brackets[i],
// and the last piece.
struct OpenText {
  std::vector<std::string_view> pieces;
  std::vector<std::vector<int64_t>> brackets;  // an empty one: the sizes of the bracket before
};

absl::StatusOr<OpenText> TakeApart(std::string_view text) {
  OpenText open;
  size_t count = 1;
  std::string outside;  // all pieces
  while (true) {
    const size_t begin = text.find_first_of("[]");
    open.pieces.push_back(text.substr(0, begin));
    AppendTo(&outside, open.pieces.back());
    if (begin == std::string_view::npos) return open;
    const auto refuse = [&](std::string_view rule) {
      return absl::InvalidArgumentError(Concat(TokenName(outside), ": ", rule));
    };
    const size_t end = text.find_first_of("[]", begin + 1);
    if (text[begin] == ']' || end == std::string_view::npos || text[end] == '[') {
      return refuse("brackets must come in pairs, one behind the other");
    }
    if (open.brackets.size() == kMaxBrackets) {
      return refuse(Concat("must be one of at most ", kMaxBrackets, " brackets"));
    }
    const std::string_view inside = Strip(text.substr(begin + 1, end - begin - 1));
    text.remove_prefix(end + 1);
    if (inside == "=") {
      if (open.brackets.empty()) return refuse("[=] must have a bracket with sizes before it");
      open.brackets.emplace_back();
      continue;
    }
    absl::StatusOr<std::vector<int64_t>> sizes = ParseSizes(inside);
    if (!sizes.ok()) return refuse(std::string(sizes.status().message()));
    count *= sizes->size();
    if (count > kMaxExpansions) {
      return refuse(Concat("must stand for at most ", kMaxExpansions, " problems"));
    }
    open.brackets.push_back(*std::move(sizes));
  }
}

// Appends what the brackets from `next` on make of `text`.
void Fill(const OpenText& open, size_t next, int64_t before, const std::string& text,
          std::vector<std::string>* texts) {
  const std::string so_far = text + std::string(open.pieces[next]);
  if (next == open.brackets.size()) {
    texts->push_back(so_far);
    return;
  }
  const std::vector<int64_t> same = {before};
  const std::vector<int64_t>& sizes = open.brackets[next];
  for (const int64_t size : sizes.empty() ? same : sizes) {
    Fill(open, next + 1, size, Concat(so_far, size), texts);
  }
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
  ASSIGN_OR_RETURN(const OpenText open, TakeApart(text));
  std::vector<std::string> texts;
  Fill(open, 0, 0, "", &texts);
  return texts;
}

}  // namespace convtune
