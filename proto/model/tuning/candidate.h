// A Candidate is one way to compute a convolution, with its measurements; Constraints say which
// candidates are an answer.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model/enums.h"

namespace convtune {

// A graph-API engine config. Knobs are ordered by type, each type once.
struct EngineConfig {
  int64_t engine_index = 0;
  std::vector<std::pair<int, int64_t>> knobs;  // cudnnBackendKnobType_t, setting
  friend auto operator<=>(const EngineConfig&, const EngineConfig&) = default;
};

// A legacy-API algorithm: cuDNN's numbers of the algorithm and the math type.
struct LegacyAlgorithm {
  int algorithm = 0;
  int math_type = 0;
  friend auto operator<=>(const LegacyAlgorithm&, const LegacyAlgorithm&) = default;
};

using CandidateId = std::variant<EngineConfig, LegacyAlgorithm>;

// "graph:eng34,k2=5,k3=0" or "legacy:algo1,math2".
std::string ToText(const CandidateId& id);
// Reads that form; knobs may come in any order.
absl::StatusOr<CandidateId> ParseCandidateId(std::string_view text);
// cuDNN's name without its prefix, "IMPLICIT_PRECOMP_GEMM"; "ALGO_n" if n is
// not known.
std::string LegacyAlgorithmName(Operation operation, int algorithm);

inline Api ApiOf(const CandidateId& id) {
  return std::holds_alternative<EngineConfig>(id) ? Api::kGraph : Api::kLegacy;
}

// Candidates by the start of their text form, in which any number may be `*`. A knob
// that is not named may be anything, and so may a math type. Value type.
struct CandidatePattern {
  Api api = Api::kGraph;                                      // never kAny
  std::optional<int64_t> number;                              // engine or algorithm; nullopt: any
  std::vector<std::pair<int, std::optional<int64_t>>> knobs;  // by type; nullopt: any setting
  std::optional<int64_t> math_type;                           // legacy API alone; nullopt: any

  // Reads "eng47", "graph:eng47,k2=*,k3=0", "graph:*", "legacy:algo1", "legacy:*,math2".
  static absl::StatusOr<CandidatePattern> Parse(std::string_view text);
  // With "graph:" or "legacy:" in front, knobs by ascending type.
  std::string ToText() const;
  bool Fits(const CandidateId& candidate) const;
  friend bool operator==(const CandidatePattern&, const CandidatePattern&) = default;
};

// The time of a candidate in one launch mode and cache state, in microseconds. Value
// type.
struct TimeSummary {
  LaunchMode launch = LaunchMode::kEager;
  CacheState cache_state = CacheState::kInputHot;
  double median_us = 0;
  double low_us = 0;  // interval of the median; see Candidate
  double high_us = 0;
  int sample_count = 0;
  friend bool operator==(const TimeSummary&, const TimeSummary&) = default;
};

// Places in what each mode of the graph API's heuristics lists, from 1; 0: that
// mode does not list it, or is not known to. Value type.
struct HeuristicPlaces {
  static constexpr int kMost = 32767;

  int16_t mode_a = 0;
  int16_t mode_b = 0;
  int16_t fallback = 0;
  friend bool operator==(const HeuristicPlaces&, const HeuristicPlaces&) = default;
};

// Value type.
struct Candidate {
  CandidateId id;
  uint32_t numerical_notes = 0;  // mask of NoteBit(NumericalNote)
  uint32_t behavior_notes = 0;   // mask of NoteBit(BehaviorNote)
  int64_t workspace_bytes = 0;
  int heuristic_rank = -1;  // see convtune.v1.Candidate
  HeuristicPlaces places;
  CandidateStatus status = CandidateStatus::kFinalized;
  std::string error_message;
  // GPU time in each round, in the tuning's cache state, launched from a stream.
  // 0: it did not run in that round, or that sample was discarded.
  std::vector<int64_t> samples_ns;
  double median_us = 0;  // of samples_ns; kept when samples are thinned
  double q1_us = 0;
  double q3_us = 0;
  // Interval of the median once what all candidates of a round have in common
  // is taken out; see server/decision/samples.h. Equal to the median
  // for the fastest. Where none was made: the quartiles.
  double low_us = 0;
  double high_us = 0;
  int sample_count = 0;     // those of samples_ns that are not 0
  double find_us = 0;       // what cudnnFind* reported; 0: not asked
  double host_us = 0;       // median time that a launch from a stream takes the host; 0: not known
  double sm_clock_mhz = 0;  // median over the samples; 0: not measured
  // Largest difference from the reference in units of the largest value of
  // the reference; nullopt: not compared.
  std::optional<double> error;
  CaptureSupport capture = CaptureSupport::kUnknown;
  // Other cache states, and replays of a CUDA graph. Ordered by launch, then
  // cache state, each pair at most once; never that of samples_ns.
  std::vector<TimeSummary> other_times;

  // Can be an answer.
  bool usable() const {
    return status == CandidateStatus::kTimed || status == CandidateStatus::kFinalized;
  }
  bool timed() const { return status == CandidateStatus::kTimed; }
  bool has(NumericalNote note) const { return (numerical_notes & NoteBit(note)) != 0; }
  bool has(BehaviorNote note) const { return (behavior_notes & NoteBit(note)) != 0; }
  // Two runs give the same bits.
  bool deterministic() const { return !has(NumericalNote::kNondeterministic); }

  // True if it can be an answer for callers that capture into a CUDA graph:
  // what was tried, else what cuDNN notes of it.
  bool capturable() const {
    return capture == CaptureSupport::kUnknown ? has(BehaviorNote::kSupportsCudaGraphNativeApi)
                                               : capture == CaptureSupport::kYes;
  }

  friend bool operator==(const Candidate&, const Candidate&) = default;
};

// Place in the list of the API's heuristics, for ordering: those that are not listed
// (heuristic_rank -1) come last.
constexpr int ListPlace(int heuristic_rank) {
  return heuristic_rank < 0 ? std::numeric_limits<int>::max() : heuristic_rank;
}

// Order in which cuDNN's heuristics list candidates: each API has its own list, and the graph
// API's comes first. Candidates of one API that are not listed are equivalent.
bool IsListedBefore(const Candidate& a, const Candidate& b);

// Of `candidates`, the one that cuDNN's heuristic for `api` lists first; nullptr
// if it lists none. Of both APIs (kAny), the graph API's first; without one, the
// legacy API's.
const Candidate* FirstListed(const std::vector<const Candidate*>& candidates, Api api);

// The stock choice of callers of `api`: what cuDNN itself would run for them,
// the first that it lists (FirstListed) of those that ran. nullopt if none did.
std::optional<size_t> StockIndex(const std::vector<Candidate>& candidates, Api api = Api::kAny);

// True if launching a candidate takes the host so much less time than launching
// another that it matters: both times are known, and the other's is longer by a
// fifth and by a microsecond.
bool IsCheaperToLaunch(double host_us, double other_host_us);

// A sample for samples_ns: at least 1 for a time above 0, else 0.
int64_t SampleNs(double time_us);

// Median and quartiles of what is not 0 in samples_ns into the candidate, by
// linear interpolation between order statistics (type 7 of Hyndman and Fan
// 1996), and the quartiles as its interval.
void SummarizeSamples(Candidate* candidate);

// Removes times, samples and what was seen along with them: a candidate that was timed and then
// found not to work claims no speed.
void ForgetTimes(Candidate* candidate);

// See convtune.v1.Constraints. Value type.
struct Constraints {
  std::optional<int64_t> max_workspace_bytes = std::nullopt;
  bool deterministic = false;
  bool forbid_tf32 = false;
  bool forbid_down_convert = false;
  bool forbid_winograd = false;
  bool forbid_fft = false;
  bool forbid_reduced_precision_reduction = false;
  Api api = Api::kAny;
  LaunchMode launch = LaunchMode::kEager;
  // Largest Candidate::error; one that was not compared does not keep to it.
  std::optional<double> max_error = std::nullopt;
  // Ranks by times taken in this state; nullopt: that of the tuning.
  std::optional<CacheState> cache_state = std::nullopt;
  friend bool operator==(const Constraints&, const Constraints&) = default;
};

// True if the candidate, which must be usable(), keeps to the constraints for
// inputs of type `data_type`.
bool Satisfies(const Candidate& candidate, const Constraints& constraints, DataType data_type);

}  // namespace convtune
