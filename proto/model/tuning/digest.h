// Stable digests and checksums (XXH3, https://xxhash.com; its 64- and 128-bit
// outputs are fixed since 0.8.0).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

#include "proto/model/problem/conv_problem.h"

namespace convtune {

// 128 bits over "convtune.key.v1\n" + problem text + "\n" + environment text.
struct TuningDigest {
  uint64_t high = 0;
  uint64_t low = 0;
  friend auto operator<=>(const TuningDigest&, const TuningDigest&) = default;

  // "v1:" and 32 hex digits.
  std::string ToString() const;

  template <typename H>
  friend H AbslHashValue(H h, const TuningDigest& d) {
    return H::combine(std::move(h), d.high, d.low);
  }
};

// A TuningKey identifies a tuning by its problem and its environment. Equality and order
// (by environment, then by problem) compare the texts, never the digest. Value type.
struct TuningKey {
  std::string problem_text;      // canonical
  std::string environment_text;  // Environment::ToText()

  TuningDigest Digest() const;
  friend bool operator==(const TuningKey&, const TuningKey&) = default;
  friend bool operator<(const TuningKey& a, const TuningKey& b) {
    return std::tie(a.environment_text, a.problem_text) <
           std::tie(b.environment_text, b.problem_text);
  }
};

// 64-bit checksum of bytes.
uint64_t Checksum64(std::string_view bytes);

}  // namespace convtune
