#include "proto/model/tuning/candidate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "absl/status/status.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/model/text.h"

namespace convtune {
namespace {

// Reads the text form of a candidate, in which numbers may be `*` for patterns alone.
class TextReader {
 public:
  explicit TextReader(bool patterns) : patterns_(patterns) {}

  absl::Status Read(std::string_view text, CandidatePattern* out) const {
    const bool legacy = ConsumeFront(&text, "legacy:");
    if (!legacy && !ConsumeFront(&text, "graph:") && !(patterns_ && text.starts_with("eng"))) {
      return absl::InvalidArgumentError(patterns_ ? "expected eng, graph: or legacy: in front"
                                                  : "expected graph: or legacy: in front");
    }
    out->api = legacy ? Api::kLegacy : Api::kGraph;
    const std::vector<std::string_view> tokens = Split(text, ',');
    if (legacy && (tokens.size() > 2 || (!patterns_ && tokens.size() < 2))) {
      return absl::InvalidArgumentError(Concat("expected algo<n>,math<n>, found ", Quote(text)));
    }
    if (!patterns_ || tokens[0] != "*") {
      RETURN_IF_ERROR(
          ReadNumber(tokens[0], legacy ? "algo" : "eng", legacy ? kShort : kLong, &out->number));
    }
    if (!legacy) out->knobs.reserve(tokens.size() - 1);
    for (size_t i = 1; i < tokens.size(); ++i) {
      RETURN_IF_ERROR(legacy ? ReadNumber(tokens[i], "math", kShort, &out->math_type)
                             : ReadKnob(tokens[i], out));
    }
    std::sort(out->knobs.begin(), out->knobs.end());
    const auto doubled =
        std::adjacent_find(out->knobs.begin(), out->knobs.end(),
                           [](const auto& a, const auto& b) { return a.first == b.first; });
    if (doubled == out->knobs.end()) return absl::OkStatus();
    return absl::InvalidArgumentError(Concat("k", doubled->first, " is given twice"));
  }

 private:
  // Numbers of knob types, algorithms and math types have at most kShort bits, of engines kLong.
  static constexpr int kShort = 31;
  static constexpr int kLong = 63;

  std::string_view OrAny() const { return patterns_ ? " or *" : ""; }

  // The number behind `name`; nullopt: `*`.
  absl::Status ReadNumber(std::string_view text, std::string_view name, int bits,
                          std::optional<int64_t>* out) const {
    std::string_view rest = text;
    if (ConsumeFront(&rest, name)) {
      if (patterns_ && rest == "*") return absl::OkStatus();
      int64_t value = 0;
      const auto most = static_cast<int64_t>((uint64_t{1} << bits) - 1);
      if (ReadInt64(rest, &value).ok() && value >= 0 && value <= most) {
        *out = value;
        return absl::OkStatus();
      }
    }
    return absl::InvalidArgumentError(Concat("expected ", name, " and a number from 0 to 2^", bits,
                                             "-1", OrAny(), ", found ", Quote(text)));
  }

  absl::Status ReadKnob(std::string_view text, CandidatePattern* out) const {
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) {
      return absl::InvalidArgumentError(
          Concat("expected k<type>=<number", OrAny(), ">, found ", Quote(text)));
    }
    std::optional<int64_t> type;
    RETURN_IF_ERROR(ReadNumber(text.substr(0, equals), "k", kShort, &type));
    if (!type) return absl::InvalidArgumentError("the type of a knob must be a number");
    const std::string_view setting = text.substr(equals + 1);
    std::optional<int64_t>& value = out->knobs.emplace_back(static_cast<int>(*type), 0).second;
    if (patterns_ && setting == "*") {
      value.reset();
    } else if (!ReadInt64(setting, &*value).ok()) {
      return absl::InvalidArgumentError(
          Concat("expected k", *type, "=<number of 64 bits", OrAny(), ">, found ", Quote(text)));
    }
    return absl::OkStatus();
  }

  const bool patterns_;
};

bool IsListed(const Candidate& candidate, Api api) {
  return candidate.heuristic_rank >= 0 && (api == Api::kAny || ApiOf(candidate.id) == api);
}

constexpr uint32_t kWinogradNotes =
    NoteBit(NumericalNote::kWinograd) | NoteBit(NumericalNote::kWinogradTile4x4) |
    NoteBit(NumericalNote::kWinogradTile6x6) | NoteBit(NumericalNote::kWinogradTile13x13);
constexpr uint32_t kTf32Notes =
    NoteBit(NumericalNote::kTensorCore) | NoteBit(NumericalNote::kDownConvertInputs);

}  // namespace

std::string ToText(const CandidateId& id) {
  if (const auto* legacy = std::get_if<LegacyAlgorithm>(&id)) {
    return Concat("legacy:algo", legacy->algorithm, ",math", legacy->math_type);
  }
  const EngineConfig& config = std::get<EngineConfig>(id);
  std::string text = Concat("graph:eng", config.engine_index);
  for (const auto& [type, value] : config.knobs) AppendTo(&text, ",k", type, "=", value);
  return text;
}

absl::StatusOr<CandidateId> ParseCandidateId(std::string_view text) {
  constexpr size_t kMostText = 4096;
  CandidatePattern read;
  const absl::Status status = text.size() <= kMostText
                                  ? TextReader(/*patterns=*/false).Read(text, &read)
                                  : absl::InvalidArgumentError("must be at most 4096 bytes");
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        Concat("candidate: is ", Quote(text), ": ", status.message()));
  }
  if (read.api == Api::kLegacy) {
    return LegacyAlgorithm{static_cast<int>(*read.number), static_cast<int>(*read.math_type)};
  }
  EngineConfig config{*read.number, {}};
  config.knobs.reserve(read.knobs.size());
  for (const auto& [type, setting] : read.knobs) config.knobs.emplace_back(type, *setting);
  return config;
}

absl::StatusOr<CandidatePattern> CandidatePattern::Parse(std::string_view text) {
  constexpr size_t kMostText = 1024;
  if (text.size() > kMostText) return absl::InvalidArgumentError("must be at most 1024 bytes");
  CandidatePattern pattern;
  const absl::Status read = TextReader(/*patterns=*/true).Read(text, &pattern);
  if (read.ok()) return pattern;
  return absl::InvalidArgumentError(
      Concat("must be a candidate in which * stands for any number, such as eng47, eng47,k2=* or "
             "legacy:*, is ",
             Quote(text), ": ", read.message()));
}

std::string CandidatePattern::ToText() const {
  if (api == Api::kLegacy) {
    std::string text = number ? Concat("legacy:algo", *number) : "legacy:*";
    if (math_type) AppendTo(&text, ",math", *math_type);
    return text;
  }
  std::string text = number ? Concat("graph:eng", *number) : "graph:*";
  for (const auto& [type, setting] : knobs) {
    AppendTo(&text, ",k", type, "=", setting ? Concat(*setting) : "*");
  }
  return text;
}

bool CandidatePattern::Fits(const CandidateId& candidate) const {
  if (ApiOf(candidate) != api) return false;
  if (const auto* legacy = std::get_if<LegacyAlgorithm>(&candidate)) {
    return (!number || *number == legacy->algorithm) &&
           (!math_type || *math_type == legacy->math_type);
  }
  const EngineConfig& config = std::get<EngineConfig>(candidate);
  if (number && *number != config.engine_index) return false;
  return std::all_of(knobs.begin(), knobs.end(), [&config](const auto& knob) {
    return std::any_of(config.knobs.begin(), config.knobs.end(), [&knob](const auto& set) {
      return set.first == knob.first && (!knob.second || *knob.second == set.second);
    });
  });
}

std::string LegacyAlgorithmName(Operation operation, int algorithm) {
  // By the operation's number, then the algorithm's.
  static const std::vector<std::string_view> kNames[] = {
      {},
      {"IMPLICIT_GEMM", "IMPLICIT_PRECOMP_GEMM", "GEMM", "DIRECT", "FFT", "FFT_TILING", "WINOGRAD",
       "WINOGRAD_NONFUSED"},
      {"ALGO_0", "ALGO_1", "FFT", "FFT_TILING", "WINOGRAD", "WINOGRAD_NONFUSED"},
      {"ALGO_0", "ALGO_1", "FFT", "ALGO_3", "WINOGRAD", "WINOGRAD_NONFUSED", "FFT_TILING"}};
  const std::vector<std::string_view>& names = kNames[static_cast<size_t>(operation)];
  const auto number = static_cast<size_t>(algorithm);  // a negative one is beyond them all
  return number < names.size() ? std::string(names[number]) : Concat("ALGO_", algorithm);
}

bool IsListedBefore(const Candidate& a, const Candidate& b) {
  return std::pair(ApiOf(a.id), ListPlace(a.heuristic_rank)) <
         std::pair(ApiOf(b.id), ListPlace(b.heuristic_rank));
}

const Candidate* FirstListed(const std::vector<const Candidate*>& candidates, Api api) {
  const Candidate* first = nullptr;
  for (const Candidate* c : candidates) {
    if (IsListed(*c, api) && (first == nullptr || IsListedBefore(*c, *first))) first = c;
  }
  return first;
}

std::optional<size_t> StockIndex(const std::vector<Candidate>& candidates, Api api) {
  std::optional<size_t> stock;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!candidates[i].usable() || !IsListed(candidates[i], api)) continue;
    if (!stock || IsListedBefore(candidates[i], candidates[*stock])) stock = i;
  }
  return stock;
}

bool IsCheaperToLaunch(double host_us, double other_host_us) {
  constexpr double kShare = 1.2;
  constexpr double kLeastUs = 1;
  return host_us > 0 && other_host_us > std::max(host_us * kShare, host_us + kLeastUs);
}

int64_t SampleNs(double time_us) {
  if (!(time_us > 0)) return 0;
  constexpr double kMost = 1e18;
  return std::max<int64_t>(1, std::llround(std::min(time_us * 1e3, kMost)));
}

void SummarizeSamples(Candidate* candidate) {
  std::vector<int64_t> sorted = candidate->samples_ns;
  std::erase_if(sorted, [](int64_t sample) { return sample <= 0; });
  std::sort(sorted.begin(), sorted.end());
  const auto quantile = [&sorted](double p) {
    if (sorted.empty()) return 0.0;
    const double position = p * static_cast<double>(sorted.size() - 1);
    const double below = std::floor(position);
    const auto index = static_cast<size_t>(below);
    const auto low = static_cast<double>(sorted[index]);
    const auto high = static_cast<double>(sorted[std::min(index + 1, sorted.size() - 1)]);
    return (low + (position - below) * (high - low)) / 1e3;
  };
  candidate->q1_us = quantile(0.25);
  candidate->median_us = quantile(0.5);
  candidate->q3_us = quantile(0.75);
  candidate->low_us = candidate->q1_us;
  candidate->high_us = candidate->q3_us;
  candidate->sample_count = static_cast<int>(sorted.size());
}

void ForgetTimes(Candidate* candidate) {
  candidate->samples_ns.clear();
  SummarizeSamples(candidate);
  candidate->host_us = 0;
  candidate->sm_clock_mhz = 0;
  candidate->other_times.clear();
}

bool Satisfies(const Candidate& candidate, const Constraints& constraints, DataType data_type) {
  if (!candidate.usable()) return false;
  const uint32_t notes = candidate.numerical_notes;
  if (constraints.max_workspace_bytes &&
      candidate.workspace_bytes > *constraints.max_workspace_bytes) {
    return false;
  }
  if (constraints.deterministic && !candidate.deterministic()) return false;
  // Tensor cores take f32 inputs only after narrowing them.
  if (constraints.forbid_tf32 && data_type == DataType::kF32 && (notes & kTf32Notes) != 0) {
    return false;
  }
  if (constraints.forbid_down_convert && candidate.has(NumericalNote::kDownConvertInputs)) {
    return false;
  }
  if (constraints.forbid_winograd && (notes & kWinogradNotes) != 0) return false;
  if (constraints.forbid_fft && candidate.has(NumericalNote::kFft)) return false;
  if (constraints.forbid_reduced_precision_reduction &&
      candidate.has(NumericalNote::kReducedPrecisionReduction)) {
    return false;
  }
  if (constraints.api != Api::kAny && ApiOf(candidate.id) != constraints.api) return false;
  // As floats, which is how records keep an error: the answer is the same after a restart.
  if (constraints.max_error &&
      !(candidate.error &&
        static_cast<float>(*candidate.error) <= static_cast<float>(*constraints.max_error))) {
    return false;
  }
  return constraints.launch != LaunchMode::kGraphCapture || candidate.capturable();
}

}  // namespace convtune
