// An Environment is the GPU model and library for which measurements hold, and a TuningKey a
// problem in one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model/enums.h"
#include "proto/model/violation.h"

namespace convtune {

namespace v1 {
class Environment;
}

struct CudnnVersion {
  int major = 0;
  int minor = 0;
  int patch = 0;

  // "9.19.0".
  std::string ToText() const;
  // Reads ToText()'s form. INVALID_ARGUMENT says what it must be.
  static absl::StatusOr<CudnnVersion> Parse(std::string_view text);
  // Of a number of cudnnGetVersion: 8907 is 8.9.7, and 91900 is 9.19.0.
  static CudnnVersion FromNumber(int64_t number);
  friend auto operator<=>(const CudnnVersion&, const CudnnVersion&) = default;
};

// An Environment is the part of a key that says where a tuning holds. Value type.
struct Environment {
  bool profile = false;   // a device-properties profile, not a GPU
  std::string gpu_model;  // "NVIDIA H200"
  int cc_major = 0;       // compute capability
  int cc_minor = 0;
  int sm_count = 0;
  std::string mig_profile;  // "1g.18gb"; empty without MIG
  CudnnVersion cudnn;
  LibraryConfiguration library = LibraryConfiguration::kUnknown;

  // "profile:nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full"; after sms
  // "mig=1g.18gb" if there is one; "profile:" only for a profile. The model is
  // a slug (lower case; runs of anything but letters and digits are one '-').
  std::string ToText() const;
  // "nvidia-h200" or "profile:nvidia-h200"; with "-1g.18gb" under MIG.
  std::string Name() const;
  // Reads ToText()'s form; gpu_model is then the slug.
  static absl::StatusOr<Environment> Parse(std::string_view text);
  // A GPU made of software: nothing that is measured on it holds for a card.
  bool simulated() const;

  friend bool operator==(const Environment&, const Environment&) = default;
};

// Lower case; runs of anything but letters and digits are one '-'.
std::string Slug(std::string_view gpu_model);

// Environment::simulated() of an environment's gpu_model, Name() or ToText(): it begins with
// "SIMULATED ".
bool IsSimulated(std::string_view environment);

// Reads a program's own environment (BatchGetRequest.program): an empty text, 0 and kUnknown are
// not known. Where it breaks rules, adds each by the field's path, "program.sm_count", and
// returns nullopt.
std::optional<Environment> ReadProgram(const v1::Environment& message,
                                       std::vector<Violation>* violations);
// True if all that is known of the program's is the same in `environment`. `profile`
// counts where the model is known.
bool Fits(const Environment& program, const Environment& environment);
// All that is known of the program's, as in ToText(): "nvidia-h200,cudnn=9.12.0".
std::string KnownText(const Environment& program);

// Provenance is the place at which measurements were taken. It is no part of the key.
struct Provenance {
  std::string driver_version;
  std::string cuda_version;  // of the runtime, "13.0"
  std::string gpu_uuid;
  std::string node;
  int64_t memory_bytes = 0;
  // Builds of the libraries that cuDNN loads by itself, "a7d443494f0d"; empty: not
  // known. Two versions of a library never have the same build.
  std::string cublaslt_build{};
  std::string nvrtc_build{};

  // All that is known of CUDA: "13.0,cublaslt=a7d443494f0d,nvrtc=65be0db342ad".
  std::string CudaText() const;
  friend bool operator==(const Provenance&, const Provenance&) = default;
};

// 128 bits of XXH3 over "convtune.key.v1\n" + problem text + "\n" + environment text.
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

// 64-bit checksum of bytes (XXH3, https://xxhash.com, whose output is fixed since 0.8.0).
uint64_t Checksum64(std::string_view bytes);

}  // namespace convtune
