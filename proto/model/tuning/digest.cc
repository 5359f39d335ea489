#define XXH_INLINE_ALL
#include "proto/model/tuning/digest.h"

#include <xxhash.h>

#include "absl/strings/str_format.h"
#include "proto/base/strings.h"

namespace convtune {

std::string TuningDigest::ToString() const { return absl::StrFormat("v1:%016x%016x", high, low); }

TuningDigest TuningKey::Digest() const {
  const std::string bytes = Concat("convtune.key.v1\n", problem_text, "\n", environment_text);
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

uint64_t Checksum64(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace convtune
