// Values for tests of stores.
#pragma once

#include <string>

#include "proto/model/tuning/ban.h"
#include "proto/model/tuning/tuning.h"

namespace convtune::db {

inline Environment SampleEnvironment() {
  Environment environment;
  environment.gpu_model = "NVIDIA H200";
  environment.cc_major = 9;
  environment.sm_count = 132;
  environment.cudnn = {9, 19, 0};
  environment.library = LibraryConfiguration::kFull;
  return environment;
}

// Tuning number n: five candidates, the first three and the fourth timed, the
// last failed. Another n gives another key.
inline Tuning SampleTuning(int n) {
  Tuning tuning;
  // Digits of equal length, so that text order is number order.
  tuning.key.problem_text =
      "fwd,x=16x64x56x56,w=64x64x3x3,pad=1x1,stride=1x1,dilation=1x1,groups=1,"
      "nhwc,f16,acc=f32,sms=" +
      std::to_string(100000 + n);
  tuning.key.environment_text = SampleEnvironment().ToText();
  tuning.provenance = {"570.124", "12.8", "GPU-1", "node-a", int64_t{141} << 30};
  tuning.evidence = Evidence::kMeasured;
  tuning.tune_time = absl::FromUnixMicros(1'700'000'000'000'001 + int64_t{n} * 1'000'000);
  tuning.elapsed = absl::Microseconds(1'234'567);
  tuning.memory_budget_bytes = int64_t{1} << 30;
  for (int i = 0; i < 5; ++i) {
    Candidate candidate;
    candidate.id = EngineConfig{n * 10 + i, {{2, i}, {3, -1}}};
    candidate.numerical_notes = NoteBit(NumericalNote::kTensorCore);
    if (i % 2 != 0) candidate.numerical_notes |= NoteBit(NumericalNote::kNondeterministic);
    candidate.behavior_notes = NoteBit(BehaviorNote::kRuntimeCompilation);
    candidate.workspace_bytes = i * 1024;
    candidate.heuristic_rank = 4 - i;
    if (i < 4) {
      candidate.status = CandidateStatus::kTimed;
      for (int sample = 0; sample < 21; ++sample) {
        candidate.samples_ns.push_back(10'500 + 1000 * i + 125 * sample);
      }
      SummarizeSamples(&candidate);
    } else {
      candidate.id = LegacyAlgorithm{1, 2};
      candidate.status = CandidateStatus::kFailed;
      candidate.error_message = "CUDNN_STATUS_EXECUTION_FAILED";
      candidate.find_us = 12.25;
    }
    tuning.candidates.push_back(candidate);
  }
  return tuning;
}

// The n of a SampleTuning(n).
inline int NumberOf(const Tuning& tuning) {
  const std::string& text = tuning.key.problem_text;
  return std::stoi(text.substr(text.rfind('=') + 1)) - 100000;
}

// SampleTuning(n) with what a timer of today adds to it.
inline Tuning SampleMeasuredTuning(int n) {
  Tuning tuning = SampleTuning(n);
  tuning.stop_reason = StopReason::kNoiseSettled;
  tuning.rounds = 21;
  tuning.cache_state = CacheState::kCold;
  tuning.conditions = {.known = true,
                       .other_processes = 2,
                       .clock_reasons = static_cast<uint32_t>(ClockReason::kPowerCap),
                       .power_limit_watts = 700.5,
                       .temperature_celsius = 61,
                       .ecc_errors = 1,
                       .mig = true,
                       .mps = true,
                       .compute_mode = ComputeMode::kExclusiveProcess,
                       .retried_runs = 3,
                       .unblocked = "replays, after eng1, eng2, eng3 gave up"};
  Candidate& first = tuning.candidates[0];
  first.low_us = first.median_us - 0.125;
  first.high_us = first.median_us + 0.25;
  first.host_us = 4.5;
  first.sm_clock_mhz = 1755;
  first.error = 0.000244140625;
  first.capture = CaptureSupport::kYes;
  first.other_times = {{LaunchMode::kEager, CacheState::kHot, 9.5, 9.25, 9.75, 10},
                       {LaunchMode::kGraphCapture, CacheState::kCold, 10.25, 10, 10.5, 10}};
  tuning.candidates[1].capture = CaptureSupport::kNo;
  tuning.candidates[4].error = 0.5;  // compared, and wrong
  return tuning;
}

// SampleTuning(n), of which two reasons say why it is incomplete.
inline Tuning SampleIncompleteTuning(int n) {
  Tuning tuning = SampleTuning(n);
  tuning.evidence = Evidence::kIncomplete;
  AddReason(IncompleteReason::kSomeUnjudged, "could not be judged: 1 candidate (why)", &tuning);
  AddReason(IncompleteReason::kGraphStockUnjudged, "among them the graph API's stock choice",
            &tuning);
  tuning.candidates[4].status = CandidateStatus::kUnjudged;
  return tuning;
}

inline Tuning WithoutSamples(Tuning tuning) {
  for (Candidate& candidate : tuning.candidates) {
    candidate.samples_ns.clear();
  }
  return tuning;
}

inline Pin SamplePin(int n) {
  Pin pin;
  pin.key = SampleTuning(n).key;
  pin.candidate = EngineConfig{34, {{2, 5}}};
  pin.reason = "the fastest one gives other results in the canary";
  pin.create_time = absl::FromUnixMicros(1'700'000'000'000'002);
  pin.expire_time = absl::FromUnixMicros(1'800'000'000'000'003);
  pin.fleet_pin = 5;
  return pin;
}

inline QuarantineEntry SampleQuarantine(int n = 1) {
  return {SampleTuning(n).key, EngineConfig{34, {}},     QuarantineReason::kCrashed,
          "illegal address",   absl::FromUnixSeconds(7), {}};
}

// Of another candidate of the same problem.
inline QuarantineEntry SampleHang() {
  return {SampleTuning(1).key,
          LegacyAlgorithm{1, 2},
          QuarantineReason::kHung,
          "hung with a budget of 2s: no reply",
          absl::FromUnixSeconds(8),
          absl::Seconds(2),
          1};
}

// Without its number.
inline Ban SampleBan() {
  Ban ban;
  ban.candidate = CandidatePattern::Parse("graph:eng47,k2=*,k3=0").value();
  ban.cudnn = CudnnRange::Parse(">=9.12,<9.20").value();
  ban.gpu = "*h200";
  ban.operation = Operation::kFwd;
  ban.data_type = DataType::kF16;
  ban.layout = TensorLayout::kNhwc;
  ban.author = "ada";
  ban.reason = "wrong results";
  ban.create_time = absl::FromUnixSeconds(9);
  ban.expire_time = absl::FromUnixSeconds(99);
  ban.fleet_ban = 7;
  return ban;
}

}  // namespace convtune::db
