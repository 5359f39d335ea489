// Pages of lists: as many rows as were asked for, as far as a reply has room for them.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/repeated_field.h"
#include "proto/model/environment.h"

namespace convtune::rpc::messages {

// gRPC's clients take 4 MiB unless told otherwise. The rest is for the reply's other
// fields.
inline constexpr size_t kMaxPageBytes = (4 << 20) - (64 << 10);

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

}  // namespace convtune::rpc::messages
