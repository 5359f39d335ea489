#include "proto/model/environment.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "convtune/v1/record.pb.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/model/model_slug.h"
#include "proto/model/text.h"
#include "proto/model/violation.h"

namespace convtune {
namespace {

constexpr std::string_view kProfilePrefix = "profile:";
// The tokens of a text behind the model; the last may be left out.
constexpr std::string_view kTokens[] = {"cc", "sms", "cudnn", "lib", "mig"};

absl::Status InvalidEnvironment(std::string_view field, std::string_view rule) {
  return ViolationError({"environment", Concat(field, ": ", rule)});
}

// Reads "9.19.0" into `count` numbers. The error is the rule alone.
absl::StatusOr<std::vector<int>> ReadNumbers(std::string_view text, size_t count) {
  std::vector<int> numbers;
  for (const std::string_view part : Split(text, '.')) {
    int64_t value = 0;
    RETURN_IF_ERROR(ReadInt64(part, &value));
    if (value < 0 || value > std::numeric_limits<int>::max()) {
      return absl::InvalidArgumentError(Concat("must be from 0 to 2^31-1, is ", value));
    }
    numbers.push_back(static_cast<int>(value));
  }
  if (numbers.size() != count) {
    return absl::InvalidArgumentError(
        Concat("must be ", count, " numbers separated by '.', is ", Quote(text)));
  }
  return numbers;
}

absl::StatusOr<std::vector<int>> ReadNumbersOf(std::string_view field, std::string_view text,
                                               size_t count) {
  auto numbers = ReadNumbers(text, count);
  if (!numbers.ok()) return InvalidEnvironment(field, std::string(numbers.status().message()));
  return numbers;
}

// The rule for MIG profiles that `text` breaks; empty if `text` is a MIG profile.
std::string CheckMigProfile(std::string_view text) {
  constexpr std::string_view kLetters = "0123456789abcdefghijklmnopqrstuvwxyz.+-";
  const bool is_profile =
      !text.empty() && text.find_first_not_of(kLetters) == std::string_view::npos;
  return is_profile ? "" : Concat(Quote(text), " is not a MIG profile such as 1g.18gb");
}

}  // namespace

std::string CudnnVersion::ToText() const { return Concat(major, ".", minor, ".", patch); }

absl::StatusOr<CudnnVersion> CudnnVersion::Parse(std::string_view text) {
  ASSIGN_OR_RETURN(const std::vector<int> numbers, ReadNumbers(text, 3));
  return CudnnVersion{numbers[0], numbers[1], numbers[2]};
}

CudnnVersion CudnnVersion::FromNumber(int64_t number) {
  const int64_t unit = number < 10'000 ? 1'000 : 10'000;
  return {static_cast<int>(number / unit), static_cast<int>(number % unit / 100),
          static_cast<int>(number % 100)};
}

std::string Slug(std::string_view gpu_model) {
  std::string slug(gpu_model.size(), '\0');
  slug.resize(WriteSlug(gpu_model.data(), gpu_model.size(), slug.data(), slug.size()));
  return slug;
}

bool IsSimulated(std::string_view environment) {
  return absl::StartsWith(Slug(environment), "simulated-");
}

bool Environment::simulated() const { return IsSimulated(gpu_model); }

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

  std::array<std::optional<std::string_view>, std::size(kTokens)> values;
  for (size_t i = 1; i < tokens.size(); ++i) {
    const size_t equals = std::min(tokens[i].find('='), tokens[i].size());
    const std::string_view key = tokens[i].substr(0, equals);
    const std::string_view value = tokens[i].substr(std::min(equals + 1, tokens[i].size()));
    const auto token = std::ranges::find(kTokens, key);
    if (token == std::end(kTokens)) return InvalidEnvironment(Excerpt(key), "unknown token");
    std::optional<std::string_view>& slot = values[static_cast<size_t>(token - kTokens)];
    if (slot) return InvalidEnvironment(key, "given twice");
    slot = value;
  }
  const auto& [cc, sms, cudnn, lib, mig] = values;
  for (size_t i = 0; &values[i] != &mig; ++i) {
    if (!values[i]) return InvalidEnvironment(kTokens[i], "required");
  }

  ASSIGN_OR_RETURN(const std::vector<int> capability, ReadNumbersOf("cc", *cc, 2));
  environment.cc_major = capability[0];
  environment.cc_minor = capability[1];
  ASSIGN_OR_RETURN(const std::vector<int> sm_count, ReadNumbersOf("sms", *sms, 1));
  environment.sm_count = sm_count[0];
  ASSIGN_OR_RETURN(const std::vector<int> version, ReadNumbersOf("cudnn", *cudnn, 3));
  environment.cudnn = {version[0], version[1], version[2]};
  if (mig) {
    const std::string rule = CheckMigProfile(*mig);
    if (!rule.empty()) return InvalidEnvironment("mig", rule);
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

std::optional<Environment> ReadProgram(const v1::Environment& message,
                                       std::vector<Violation>* violations) {
  const size_t before = violations->size();
  const auto refuse = [violations](std::string_view field, std::string rule) {
    violations->push_back({Concat("program.", field), std::move(rule)});
  };
  Environment program;
  program.profile = message.profile();
  program.gpu_model = Slug(message.gpu_model());
  if (program.gpu_model.empty() && !message.gpu_model().empty()) {
    refuse("gpu_model", Concat("must have a letter or a digit, is ", Quote(message.gpu_model())));
  }
  if (!message.compute_capability().empty()) {
    const auto numbers = ReadNumbers(message.compute_capability(), 2);
    if (numbers.ok()) {
      program.cc_major = (*numbers)[0];
      program.cc_minor = (*numbers)[1];
    } else {
      refuse("compute_capability", std::string(numbers.status().message()));
    }
  }
  program.sm_count = message.sm_count();
  if (program.sm_count < 0) {
    refuse("sm_count", Concat("must be from 0 to 2^31-1, is ", program.sm_count));
  }
  program.mig_profile = message.mig_profile();
  if (const std::string rule = CheckMigProfile(program.mig_profile);
      !program.mig_profile.empty() && !rule.empty()) {
    refuse("mig_profile", rule);
  }
  if (!message.cudnn_version().empty()) {
    const auto version = CudnnVersion::Parse(message.cudnn_version());
    if (version.ok()) {
      program.cudnn = *version;
    } else {
      refuse("cudnn_version", std::string(version.status().message()));
    }
  }
  program.library = static_cast<LibraryConfiguration>(message.library_configuration());
  return violations->size() == before ? std::make_optional(std::move(program)) : std::nullopt;
}

bool Fits(const Environment& program, const Environment& environment) {
  const bool model =
      program.gpu_model.empty() || (program.profile == environment.profile &&
                                    Slug(program.gpu_model) == Slug(environment.gpu_model));
  const bool capability = program.cc_major == 0 || (program.cc_major == environment.cc_major &&
                                                    program.cc_minor == environment.cc_minor);
  return model && capability &&
         (program.sm_count == 0 || program.sm_count == environment.sm_count) &&
         (program.mig_profile.empty() || program.mig_profile == environment.mig_profile) &&
         (program.cudnn == CudnnVersion() || program.cudnn == environment.cudnn) &&
         (program.library == LibraryConfiguration::kUnknown ||
          program.library == environment.library);
}

std::string KnownText(const Environment& program) {
  std::string text;
  const auto add = [&text](bool known, auto... parts) {
    if (known) AppendTo(&text, text.empty() ? "" : ",", parts...);
  };
  add(!program.gpu_model.empty(), program.profile ? kProfilePrefix : "", Slug(program.gpu_model));
  add(program.cc_major != 0, "cc=", program.cc_major, ".", program.cc_minor);
  add(program.sm_count != 0, "sms=", program.sm_count);
  add(!program.mig_profile.empty(), "mig=", program.mig_profile);
  add(program.cudnn != CudnnVersion(), "cudnn=", program.cudnn.ToText());
  add(program.library != LibraryConfiguration::kUnknown, "lib=", convtune::Name(program.library));
  return text;
}

std::string Provenance::CudaText() const {
  std::string text = cuda_version;
  if (!cublaslt_build.empty()) AppendTo(&text, ",cublaslt=", cublaslt_build);
  if (!nvrtc_build.empty()) AppendTo(&text, ",nvrtc=", nvrtc_build);
  return text;
}

std::string TuningDigest::ToString() const { return absl::StrFormat("v1:%016x%016x", high, low); }

TuningDigest TuningKey::Digest() const {
  const std::string bytes = Concat("convtune.key.v1\n", problem_text, "\n", environment_text);
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

uint64_t Checksum64(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace convtune
