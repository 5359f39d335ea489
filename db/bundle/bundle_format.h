// The framing of a bundle's records; see README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace convtune::db::bundle {

inline constexpr std::string_view kBundleMagic = "CVTNBNDL";
inline constexpr int kBundleVersion = 1;

// A record's kind is part of its frame.
enum class BundleRecordKind : uint32_t {
  kHeader = 1,       // v1.BundleHeader
  kEnvironment = 2,  // v1.BundleEnvironment
  kTuning = 3,       // v1.Tuning
  kTrailer = 4,      // v1.BundleTrailer
};

// Before the message: its length and its kind, 4 bytes each; behind it: 8 bytes
// of checksum. All numbers are little-endian.
inline constexpr size_t kBundleFrameHead = 8;
inline constexpr size_t kBundleChecksum = 8;

// No record is longer, so that a damaged length costs no more memory.
inline constexpr size_t kMaxBundleRecord = 16 << 20;
inline constexpr int kMaxBundleEnvironments = 100'000;
inline constexpr int kMaxBundleCandidates = 100'000;  // of one tuning

inline void AppendLittleEndian(uint64_t value, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

inline uint64_t ReadLittleEndian(const char* data, int bytes) {
  uint64_t value = 0;
  for (int i = bytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(data[i]);
  return value;
}

}  // namespace convtune::db::bundle
