#include "server/rpc/messages/page.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"
#include "proto/model/violation.h"

namespace convtune::rpc::messages {
namespace {

absl::Status BadToken() {
  return ViolationError({"page_token", "must be one that the previous page gave"});
}

}  // namespace

std::string PageToken(const std::vector<std::string>& texts) {
  return absl::WebSafeBase64Escape(absl::StrJoin(texts, "\n"));
}

absl::StatusOr<std::vector<std::string>> ReadPageToken(const std::string& token, size_t count) {
  std::string plain;
  if (!absl::WebSafeBase64Unescape(token, &plain)) return BadToken();
  std::vector<std::string> texts = absl::StrSplit(plain, '\n');
  if (texts.size() != count) return BadToken();
  return texts;
}

std::string KeyToken(const TuningKey& last) {
  return PageToken({last.environment_text, last.problem_text});
}

absl::StatusOr<TuningKey> ReadKeyToken(const std::string& token) {
  if (token.empty()) return TuningKey();
  ASSIGN_OR_RETURN(const std::vector<std::string> texts, ReadPageToken(token, 2));
  return TuningKey{.problem_text = texts[1], .environment_text = texts[0]};
}

absl::StatusOr<size_t> FirstOfPage(const std::string& token, size_t rows,
                                   const std::function<std::string(size_t)>& key) {
  if (token.empty()) return 0;
  ASSIGN_OR_RETURN(const std::vector<std::string> texts, ReadPageToken(token, 2));
  uint64_t seen = 0;
  if (!absl::SimpleAtoi(texts[0], &seen) || seen == 0) return BadToken();
  const std::string& last = texts[1];
  if (seen <= rows && key(seen - 1) == last) return seen;
  for (size_t i = 0; i < rows; ++i) {
    if (key(i) == last) return i + 1;
  }
  return std::min<size_t>(seen - 1, rows);
}

}  // namespace convtune::rpc::messages
