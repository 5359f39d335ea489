#include "proto/model/environment.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/model/text.h"

namespace convtune {
namespace {

constexpr std::string_view kProfilePrefix = "profile:";

absl::Status InvalidEnvironment(std::string_view field, std::string_view rule) {
  return absl::InvalidArgumentError(Concat("environment: ", field, ": ", rule));
}

// Reads "9.19.0" into `count` numbers.
absl::StatusOr<std::vector<int>> ReadNumbers(std::string_view field, std::string_view text,
                                             size_t count) {
  std::vector<int> numbers;
  for (const std::string_view part : Split(text, '.')) {
    int64_t value = 0;
    const NumberError error = ReadInt64(part, &value);
    if (error != NumberError::kNone) return InvalidEnvironment(field, NumberRule(error, part));
    if (value < 0 || value > std::numeric_limits<int>::max()) {
      return InvalidEnvironment(field, Concat("must be from 0 to 2^31-1, is ", value));
    }
    numbers.push_back(static_cast<int>(value));
  }
  if (numbers.size() != count) {
    return InvalidEnvironment(
        field, Concat("must be ", count, " numbers separated by '.', is ", Quote(text)));
  }
  return numbers;
}

bool IsMigProfile(std::string_view text) {
  if (text.empty()) return false;
  for (const char c : text) {
    if (!absl::ascii_isdigit(c) && !absl::ascii_islower(c) && c != '.' && c != '+' && c != '-') {
      return false;
    }
  }
  return true;
}

}  // namespace

std::string CudnnVersion::ToText() const { return Concat(major, ".", minor, ".", patch); }

std::string Slug(std::string_view gpu_model) {
  std::string slug;
  for (const char c : gpu_model) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      slug.push_back(absl::ascii_tolower(static_cast<unsigned char>(c)));
    } else if (!slug.empty() && slug.back() != '-') {
      slug.push_back('-');
    }
  }
  if (!slug.empty() && slug.back() == '-') slug.pop_back();
  return slug;
}

std::string Environment::ToText() const {
  return Concat(profile ? kProfilePrefix : "", Slug(gpu_model), ",cc=", cc_major, ".", cc_minor,
                ",sms=", sm_count, mig_profile.empty() ? "" : ",mig=", mig_profile,
                ",cudnn=", cudnn.ToText(), ",lib=", convtune::Name(library));
}

std::string Environment::Name() const {
  return Concat(profile ? kProfilePrefix : "", Slug(gpu_model), mig_profile.empty() ? "" : "-",
                mig_profile);
}

absl::StatusOr<Environment> Environment::Parse(std::string_view text) {
  Environment environment;
  if (text.size() > 1024) return InvalidEnvironment("text", "must be at most 1024 bytes");
  const std::vector<std::string_view> tokens = Split(text, ',');
  std::string_view model = tokens[0];
  environment.profile = ConsumeFront(&model, kProfilePrefix);
  if (model.empty() || Slug(model) != model) {
    return InvalidEnvironment("gpu_model", Concat(Quote(model), " is not a model's slug"));
  }
  environment.gpu_model = std::string(model);

  std::optional<std::string_view> cc, sms, mig, cudnn, lib;
  for (size_t i = 1; i < tokens.size(); ++i) {
    const size_t equals = std::min(tokens[i].find('='), tokens[i].size());
    const std::string_view key = tokens[i].substr(0, equals);
    const std::string_view value = tokens[i].substr(std::min(equals + 1, tokens[i].size()));
    std::optional<std::string_view>* slot = key == "cc"      ? &cc
                                            : key == "sms"   ? &sms
                                            : key == "mig"   ? &mig
                                            : key == "cudnn" ? &cudnn
                                            : key == "lib"   ? &lib
                                                             : nullptr;
    if (slot == nullptr) return InvalidEnvironment(Excerpt(key), "unknown token");
    if (slot->has_value()) return InvalidEnvironment(key, "given twice");
    *slot = value;
  }
  if (!cc) return InvalidEnvironment("cc", "required");
  if (!sms) return InvalidEnvironment("sms", "required");
  if (!cudnn) return InvalidEnvironment("cudnn", "required");
  if (!lib) return InvalidEnvironment("lib", "required");

  ASSIGN_OR_RETURN(const std::vector<int> capability, ReadNumbers("cc", *cc, 2));
  environment.cc_major = capability[0];
  environment.cc_minor = capability[1];
  ASSIGN_OR_RETURN(const std::vector<int> sm_count, ReadNumbers("sms", *sms, 1));
  environment.sm_count = sm_count[0];
  ASSIGN_OR_RETURN(const std::vector<int> version, ReadNumbers("cudnn", *cudnn, 3));
  environment.cudnn = {version[0], version[1], version[2]};
  if (mig) {
    if (!IsMigProfile(*mig)) {
      return InvalidEnvironment("mig",
                                Concat(Quote(*mig), " is not a MIG profile such as 1g.18gb"));
    }
    environment.mig_profile = std::string(*mig);
  }
  const std::optional<LibraryConfiguration> library = ParseLibraryConfiguration(*lib);
  if (!library) {
    return InvalidEnvironment("lib",
                              Concat("must be full, graph_jit_only or unknown, is ", Quote(*lib)));
  }
  environment.library = *library;
  return environment;
}

std::string Provenance::CudaText() const {
  std::string text = cuda_version;
  if (!cublaslt_build.empty()) AppendTo(&text, ",cublaslt=", cublaslt_build);
  if (!nvrtc_build.empty()) AppendTo(&text, ",nvrtc=", nvrtc_build);
  return text;
}

}  // namespace convtune
