// Pages of lists: as many rows as were asked for, as far as a reply has room for them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/repeated_field.h"
#include "proto/base/status_macros.h"
#include "proto/model/environment.h"

namespace convtune::rpc::messages {

// gRPC's clients take 4 MiB unless told otherwise. The rest is for the reply's other
// fields.
inline constexpr size_t kMaxPageBytes = (4 << 20) - (64 << 10);

// The page that a request asks for.
struct PageArgs {
  size_t size = std::numeric_limits<size_t>::max();  // most rows
  std::string token;                                 // empty: the first page
};

// A request's page. `size` 0: all that there is room for.
inline PageArgs PageOf(int size, const std::string& token) {
  return {size > 0 ? static_cast<size_t>(size) : PageArgs().size, token};
}

// Any texts without newlines as a token, and back. INVALID_ARGUMENT: it is none of
// `count` texts.
std::string PageToken(const std::vector<std::string>& texts);
absl::StatusOr<std::vector<std::string>> ReadPageToken(const std::string& token, size_t count);

// The token of the page behind a tuning's key, and back: an empty key for the first page.
std::string KeyToken(const TuningKey& last);
absl::StatusOr<TuningKey> ReadKeyToken(const std::string& token);

// Puts `make(0)`, `make(1)`, ... into a reply, up to `rows` of them or up to
// kMaxPageBytes, one at least. Returns how many it put.
template <typename Message, typename Make>
size_t AddRows(size_t rows, const Make& make, google::protobuf::RepeatedPtrField<Message>* out) {
  constexpr size_t kTagAndLength = 6;
  size_t bytes = 0;
  for (size_t i = 0; i < rows; ++i) {
    Message row = make(i);
    bytes += row.ByteSizeLong() + kTagAndLength;
    if (bytes > kMaxPageBytes && i > 0) return i;
    *out->Add() = std::move(row);
  }
  return rows;
}

// The index of the first row of the page. `key(i)` tells a row from all others: a
// page begins behind the row that the last one ended with. Where that row is gone, it
// begins with the row that now has its index.
absl::StatusOr<size_t> FirstOfPage(const std::string& token, size_t rows,
                                   const std::function<std::string(size_t)>& key);

// A page of a list that is there as a whole. `next` is the next page's token, empty
// where there is none.
template <typename Message, typename Make>
absl::Status AddPage(const PageArgs& page, size_t rows,
                     const std::function<std::string(size_t)>& key, const Make& make,
                     google::protobuf::RepeatedPtrField<Message>* out, std::string* next) {
  ASSIGN_OR_RETURN(const size_t first, FirstOfPage(page.token, rows, key));
  const size_t end = first + AddRows(
                                 std::min(rows - first, page.size),
                                 [&](size_t i) { return make(first + i); }, out);
  if (end < rows) *next = PageToken({std::to_string(end), key(end - 1)});
  return absl::OkStatus();
}

}  // namespace convtune::rpc::messages
