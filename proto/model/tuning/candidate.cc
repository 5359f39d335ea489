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

constexpr std::string_view kFwdNames[] = {
    "IMPLICIT_GEMM", "IMPLICIT_PRECOMP_GEMM", "GEMM", "DIRECT", "FFT", "FFT_TILING",
    "WINOGRAD",      "WINOGRAD_NONFUSED"};
constexpr std::string_view kBwdDataNames[] = {"ALGO_0",     "ALGO_1",   "FFT",
                                              "FFT_TILING", "WINOGRAD", "WINOGRAD_NONFUSED"};
constexpr std::string_view kBwdFilterNames[] = {
    "ALGO_0", "ALGO_1", "FFT", "ALGO_3", "WINOGRAD", "WINOGRAD_NONFUSED", "FFT_TILING"};

template <size_t N>
std::string NameOrNumber(const std::string_view (&names)[N], int algorithm) {
  if (algorithm >= 0 && static_cast<size_t>(algorithm) < N) return std::string(names[algorithm]);
  return Concat("ALGO_", algorithm);
}

absl::Status InvalidCandidate(std::string_view field, std::string_view rule) {
  return absl::InvalidArgumentError(Concat("candidate: ", field, ": ", rule));
}

// Reads the number behind `prefix`, which must be there.
absl::StatusOr<int64_t> ReadAfter(std::string_view token, std::string_view prefix, int64_t max) {
  std::string_view digits = token;
  if (!ConsumeFront(&digits, prefix)) {
    return InvalidCandidate(prefix,
                            Concat("expected ", prefix, " and a number, found ", Quote(token)));
  }
  int64_t value = 0;
  const NumberError error = ReadInt64(digits, &value);
  if (error != NumberError::kNone) return InvalidCandidate(prefix, NumberRule(error, digits));
  if (value < 0 || value > max) {
    return InvalidCandidate(prefix, Concat("must be from 0 to ", max, ", is ", value));
  }
  return value;
}

// What comes before the separator, or all; takes it and the separator off `text`.
std::string_view TakeToken(std::string_view* text, char separator) {
  const size_t end = text->find(separator);
  const std::string_view token = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return token;
}

absl::StatusOr<CandidateId> ParseEngineConfig(std::string_view text) {
  EngineConfig config;
  config.knobs.reserve(static_cast<size_t>(std::count(text.begin(), text.end(), ',')));
  bool more = text.find(',') != std::string_view::npos;
  ASSIGN_OR_RETURN(config.engine_index,
                   ReadAfter(TakeToken(&text, ','), "eng", std::numeric_limits<int64_t>::max()));
  while (more) {
    more = text.find(',') != std::string_view::npos;
    const std::string_view knob = TakeToken(&text, ',');
    const size_t equals = knob.find('=');
    if (equals == std::string_view::npos || knob.find('=', equals + 1) != std::string_view::npos) {
      return InvalidCandidate("knob", Concat("expected k<type>=<setting>, found ", Quote(knob)));
    }
    const std::string_view name = knob.substr(0, equals);
    const std::string_view digits = knob.substr(equals + 1);
    ASSIGN_OR_RETURN(const int64_t type, ReadAfter(name, "k", std::numeric_limits<int>::max()));
    int64_t setting = 0;
    const NumberError error = ReadInt64(digits, &setting);
    if (error != NumberError::kNone) return InvalidCandidate(name, NumberRule(error, digits));
    config.knobs.emplace_back(static_cast<int>(type), setting);
  }
  std::sort(config.knobs.begin(), config.knobs.end());
  const auto doubled =
      std::adjacent_find(config.knobs.begin(), config.knobs.end(),
                         [](const auto& a, const auto& b) { return a.first == b.first; });
  if (doubled != config.knobs.end()) {
    return InvalidCandidate(Concat("k", doubled->first), "given twice");
  }
  return config;
}

absl::StatusOr<CandidateId> ParseLegacyAlgorithm(std::string_view text) {
  const std::vector<std::string_view> tokens = Split(text, ',');
  if (tokens.size() != 2) {
    return InvalidCandidate("legacy", Concat("expected algo<n>,math<n>, found ", Quote(text)));
  }
  constexpr int64_t kMax = std::numeric_limits<int>::max();
  ASSIGN_OR_RETURN(const int64_t algorithm, ReadAfter(tokens[0], "algo", kMax));
  ASSIGN_OR_RETURN(const int64_t math_type, ReadAfter(tokens[1], "math", kMax));
  return LegacyAlgorithm{static_cast<int>(algorithm), static_cast<int>(math_type)};
}

bool IsListed(const Candidate& candidate, Api api) {
  return candidate.heuristic_rank >= 0 && (api == Api::kAny || ApiOf(candidate.id) == api);
}

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
  if (text.size() > 4096) return InvalidCandidate("text", "must be at most 4096 bytes");
  std::string_view rest = text;
  if (ConsumeFront(&rest, "graph:")) return ParseEngineConfig(rest);
  if (ConsumeFront(&rest, "legacy:")) return ParseLegacyAlgorithm(rest);
  return InvalidCandidate("text", Concat("must start with graph: or legacy:, is ", Quote(text)));
}

std::string LegacyAlgorithmName(Operation operation, int algorithm) {
  switch (operation) {
    case Operation::kFwd:
      return NameOrNumber(kFwdNames, algorithm);
    case Operation::kBwdData:
      return NameOrNumber(kBwdDataNames, algorithm);
    case Operation::kBwdFilter:
      return NameOrNumber(kBwdFilterNames, algorithm);
  }
  return Concat("ALGO_", algorithm);
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

}  // namespace convtune
