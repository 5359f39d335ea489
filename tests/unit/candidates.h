// Candidates and tunings made for tests.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "proto/model/tuning/ban.h"
#include "proto/model/tuning/tuning.h"
#include "server/decision/evidence.h"

namespace convtune {

inline constexpr char kH200[] = "nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full";
inline constexpr char kProblem[] = "fwd,x=16x64x56x56,w=64x64x3x3,pad=1,nhwc,f16";

// A device with these builds of the libraries that cuDNN loads.
inline Provenance Builds(const std::string& cublaslt, const std::string& nvrtc) {
  Provenance provenance;
  provenance.cublaslt_build = cublaslt;
  provenance.nvrtc_build = nvrtc;
  return provenance;
}

inline TuningKey KeyOf(const std::string& problem, const std::string& environment = kH200) {
  return {ConvProblem::Parse(problem).value().ToText(), environment};
}

// A finalised engine config; its heuristic rank is `engine`.
inline Candidate Finalized(int engine, int64_t workspace = 0) {
  Candidate candidate;
  candidate.id = EngineConfig{engine, {}};
  candidate.heuristic_rank = engine;
  candidate.workspace_bytes = workspace;
  candidate.status = CandidateStatus::kFinalized;
  return candidate;
}

// As a legacy algorithm of that place in cuDNN's legacy heuristic; -1: not asked.
inline Candidate AsLegacy(Candidate candidate, int algorithm, int rank) {
  candidate.id = LegacyAlgorithm{algorithm, 0};
  candidate.heuristic_rank = rank;
  return candidate;
}

// Timed, with quartiles and an interval of `spread` around the median.
inline Candidate Timed(int engine, double median, double spread = 0.2, int64_t workspace = 0) {
  Candidate candidate = Finalized(engine, workspace);
  candidate.status = CandidateStatus::kTimed;
  candidate.median_us = median;
  candidate.q1_us = median - spread / 2;
  candidate.q3_us = median + spread / 2;
  candidate.low_us = candidate.q1_us;
  candidate.high_us = candidate.q3_us;
  candidate.sample_count = 30;
  return candidate;
}

inline Candidate Launched(Candidate candidate, double host_us) {
  candidate.host_us = host_us;
  return candidate;
}

inline Candidate Sampled(Candidate candidate, int samples) {
  candidate.sample_count = samples;
  return candidate;
}

inline Candidate With(Candidate candidate, CandidateStatus status) {
  candidate.status = status;
  return candidate;
}

inline Tuning TuningOf(std::vector<Candidate> candidates,
                       const decision::TuningCircumstances& circumstances = {}) {
  Tuning tuning;
  tuning.key = KeyOf(kProblem);
  tuning.candidates = std::move(candidates);
  decision::FinishTuning(circumstances, &tuning);
  return tuning;
}

inline Bans BansOfPattern(const std::string& pattern, int64_t number = 1) {
  Ban ban;
  ban.number = number;
  ban.candidate = CandidatePattern::Parse(pattern).value();
  ban.reason = "wrong results";
  return Bans({std::make_shared<const Ban>(ban)});
}

// Random timed or finalised candidates with small ranges, so that ties and
// equal values are common.
inline std::vector<Candidate> RandomCandidates(std::mt19937* random) {
  const auto below = [random](int n) {
    return static_cast<int>((*random)() % static_cast<unsigned>(n));
  };
  std::vector<Candidate> candidates;
  const int count = 1 + below(30);
  const int timed_of_ten = below(3) == 0 ? 0 : 8;
  for (int i = 0; i < count; ++i) {
    Candidate c = below(10) < timed_of_ten ? Timed(i, 10 + below(12), below(5)) : Finalized(i);
    c.heuristic_rank = below(5) == 0 ? -1 : count - i;
    if (below(4) == 0) {
      c.id = LegacyAlgorithm{i, below(3)};
      c.heuristic_rank = -1;
    }
    c.workspace_bytes = below(4) * 1024;
    const bool deterministic = below(4) != 0;
    for (const NumericalNote note : {NumericalNote::kTensorCore, NumericalNote::kDownConvertInputs,
                                     NumericalNote::kReducedPrecisionReduction, NumericalNote::kFft,
                                     NumericalNote::kWinograd}) {
      if (below(4) == 0) c.numerical_notes |= NoteBit(note);
    }
    if (!deterministic) c.numerical_notes |= NoteBit(NumericalNote::kNondeterministic);
    if (c.timed()) {
      c.low_us = c.median_us - below(3);
      c.high_us = c.median_us + below(3);
      c.host_us = 3 * below(4);
      for (const LaunchMode launch : {LaunchMode::kEager, LaunchMode::kGraphCapture}) {
        if (below(4) != 0) continue;
        const double median = 10 + below(12);
        c.other_times.push_back(
            {launch, CacheState::kHot, median, median - below(3), median + below(3), 12});
      }
    }
    if (below(3) == 0) c.error = below(3);
    if (below(4) == 0) c.capture = static_cast<CaptureSupport>(1 + below(2));
    if (below(2) == 0) c.behavior_notes |= NoteBit(BehaviorNote::kSupportsCudaGraphNativeApi);
    if (below(12) == 0) c.status = CandidateStatus::kFailed;
    if (below(20) == 0) c.status = CandidateStatus::kSkippedMemory;
    candidates.push_back(std::move(c));
  }
  return candidates;
}

}  // namespace convtune
