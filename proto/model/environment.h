// An Environment is the GPU model and library for which measurements hold.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
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
  friend auto operator<=>(const CudnnVersion&, const CudnnVersion&) = default;
};

// The key part. Value type.
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

// A program's own environment (BatchGetRequest.program): an empty text, 0 and kUnknown are not
// known. Nullopt adds each rule that is broken, by the field's name.
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

}  // namespace convtune
