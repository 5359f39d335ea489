#include "db/store/packed_candidates.h"

#include <utility>

#include "db/store/packed_bytes.h"
#include "proto/model/tuning/self_check.h"

namespace convtune::db::store {
namespace {

// Version 1 knows nothing of self-checks.
constexpr uint64_t kVersion = 2;
constexpr uint64_t kSamplesVersion = 1;
constexpr uint64_t kGraph = 0;
constexpr uint64_t kLegacy = 1;
// The least that a candidate takes.
constexpr size_t kLeastCandidateBytes = 9;

// What a candidate has beyond what every one has, in the order of the bits.
enum Has : uint64_t {
  kDeterministic = 1 << 0,  // the whole value
  kMessage = 1 << 1,
  kTimes = 1 << 2,     // median, quartiles, number of samples
  kInterval = 1 << 3,  // that is not the quartiles
  kFind = 1 << 4,
  kHost = 1 << 5,
  kClock = 1 << 6,
  kError = 1 << 7,
  kCapture = 1 << 8,
  kOtherTimes = 1 << 9,
  kLastHas = kOtherTimes,
};

uint64_t WhatItHas(const Candidate& candidate) {
  uint64_t has = 0;
  const auto add = [&has](bool is_there, Has bit) {
    if (is_there) has |= bit;
  };
  add(candidate.deterministic, kDeterministic);
  add(!candidate.error_message.empty(), kMessage);
  add(candidate.median_us != 0 || candidate.q1_us != 0 || candidate.q3_us != 0 ||
          candidate.sample_count != 0,
      kTimes);
  add(candidate.low_us != candidate.q1_us || candidate.high_us != candidate.q3_us, kInterval);
  add(candidate.find_us != 0, kFind);
  add(candidate.host_us != 0, kHost);
  add(candidate.sm_clock_mhz != 0, kClock);
  add(candidate.error.has_value(), kError);
  add(candidate.capture != CaptureSupport::kUnknown, kCapture);
  add(!candidate.other_times.empty(), kOtherTimes);
  return has;
}

void PackId(const CandidateId& id, PackedWriter* out) {
  if (const auto* legacy = std::get_if<LegacyAlgorithm>(&id)) {
    out->Unsigned(kLegacy);
    out->Signed(legacy->algorithm);
    out->Signed(legacy->math_type);
    return;
  }
  const EngineConfig& config = std::get<EngineConfig>(id);
  out->Unsigned(kGraph);
  out->Signed(config.engine_index);
  out->Unsigned(config.knobs.size());
  for (const auto& [type, setting] : config.knobs) {
    out->Signed(type);
    out->Signed(setting);
  }
}

CandidateId UnpackId(PackedReader* in) {
  if (in->Enum(kGraph, kLegacy) == kLegacy) {
    const int algorithm = in->Int();
    return LegacyAlgorithm{algorithm, in->Int()};
  }
  EngineConfig config;
  config.engine_index = in->Signed();
  const size_t count = in->Count(2);
  config.knobs.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const int type = in->Int();
    config.knobs.emplace_back(type, in->Signed());
  }
  return config;
}

void PackOtherTimes(const std::vector<TimeSummary>& times, PackedWriter* out) {
  out->Unsigned(times.size());
  for (const TimeSummary& time : times) {
    out->Unsigned(static_cast<uint64_t>(time.launch));
    out->Unsigned(static_cast<uint64_t>(time.cache_state));
    out->Real(time.median_us);
    out->Real(time.low_us);
    out->Real(time.high_us);
    out->Signed(time.sample_count);
  }
}

std::vector<TimeSummary> UnpackOtherTimes(PackedReader* in) {
  std::vector<TimeSummary> times(in->Count(27));
  for (TimeSummary& time : times) {
    time.launch = in->Enum(LaunchMode::kEager, LaunchMode::kGraphCapture);
    time.cache_state = in->Enum(CacheState::kCold, CacheState::kHot);
    time.median_us = in->Real();
    time.low_us = in->Real();
    time.high_us = in->Real();
    time.sample_count = in->Int();
  }
  return times;
}

void PackCandidate(const Candidate& candidate, PackedWriter* out) {
  const uint64_t has = WhatItHas(candidate);
  PackId(candidate.id, out);
  out->Unsigned(static_cast<uint64_t>(candidate.status));
  out->Unsigned(candidate.numerical_notes);
  out->Unsigned(candidate.behavior_notes);
  out->Signed(candidate.workspace_bytes);
  out->Signed(candidate.heuristic_rank);
  out->Unsigned(has);
  if ((has & kMessage) != 0) out->Text(candidate.error_message);
  if ((has & kTimes) != 0) {
    out->Real(candidate.median_us);
    out->Real(candidate.q1_us);
    out->Real(candidate.q3_us);
    out->Signed(candidate.sample_count);
  }
  if ((has & kInterval) != 0) {
    out->Real(candidate.low_us);
    out->Real(candidate.high_us);
  }
  if ((has & kFind) != 0) out->Real(candidate.find_us);
  if ((has & kHost) != 0) out->Real(candidate.host_us);
  if ((has & kClock) != 0) out->Real(candidate.sm_clock_mhz);
  if ((has & kError) != 0) out->Real(*candidate.error);
  if ((has & kCapture) != 0) out->Unsigned(static_cast<uint64_t>(candidate.capture));
  if ((has & kOtherTimes) != 0) PackOtherTimes(candidate.other_times, out);
}

void UnpackCandidate(PackedReader* in, Candidate* out) {
  out->id = UnpackId(in);
  out->status = in->Enum(CandidateStatus::kTimed, CandidateStatus::kUnjudged);
  out->numerical_notes = static_cast<uint32_t>(in->Unsigned());
  out->behavior_notes = static_cast<uint32_t>(in->Unsigned());
  out->workspace_bytes = in->Signed();
  out->heuristic_rank = in->Int();
  const uint64_t has = in->Enum<uint64_t>(0, 2 * kLastHas - 1);
  out->deterministic = (has & kDeterministic) != 0;
  if ((has & kMessage) != 0) out->error_message = std::string(in->Text());
  if ((has & kTimes) != 0) {
    out->median_us = in->Real();
    out->q1_us = in->Real();
    out->q3_us = in->Real();
    out->sample_count = in->Int();
  }
  out->low_us = (has & kInterval) != 0 ? in->Real() : out->q1_us;
  out->high_us = (has & kInterval) != 0 ? in->Real() : out->q3_us;
  if ((has & kFind) != 0) out->find_us = in->Real();
  if ((has & kHost) != 0) out->host_us = in->Real();
  if ((has & kClock) != 0) out->sm_clock_mhz = in->Real();
  if ((has & kError) != 0) out->error = in->Real();
  if ((has & kCapture) != 0) out->capture = in->Enum(CaptureSupport::kUnknown, CaptureSupport::kNo);
  if ((has & kOtherTimes) != 0) out->other_times = UnpackOtherTimes(in);
}

void PackRace(const Tuning& tuning, PackedWriter* out) {
  const Conditions& conditions = tuning.conditions;
  out->Unsigned(static_cast<uint64_t>(tuning.stop_reason));
  out->Signed(tuning.rounds);
  out->Unsigned(static_cast<uint64_t>(tuning.cache_state));
  const bool any = conditions != Conditions{};
  out->Unsigned(any ? 1 : 0);
  if (!any) return;
  out->Unsigned(conditions.known ? 1 : 0);
  out->Signed(conditions.other_processes);
  out->Unsigned(conditions.clock_reasons);
  out->Real(conditions.power_limit_watts);
  out->Signed(conditions.temperature_celsius);
  out->Signed(conditions.ecc_errors);
  out->Unsigned(conditions.mig ? 1 : 0);
  out->Unsigned(conditions.mps ? 1 : 0);
  out->Unsigned(static_cast<uint64_t>(conditions.compute_mode));
  out->Unsigned(conditions.self_check);
}

void UnpackRace(uint64_t version, PackedReader* in, Tuning* tuning) {
  tuning->stop_reason = in->Enum(StopReason::kNone, StopReason::kBudget);
  tuning->rounds = in->Int();
  tuning->cache_state = in->Enum(CacheState::kCold, CacheState::kHot);
  Conditions& conditions = tuning->conditions;
  conditions = {};
  if (in->Enum<uint64_t>(0, 1) == 0) return;
  conditions.known = in->Enum<uint64_t>(0, 1) != 0;
  conditions.other_processes = in->Int();
  conditions.clock_reasons = static_cast<uint32_t>(in->Unsigned());
  conditions.power_limit_watts = in->Real();
  conditions.temperature_celsius = in->Int();
  conditions.ecc_errors = in->Signed();
  conditions.mig = in->Enum<uint64_t>(0, 1) != 0;
  conditions.mps = in->Enum<uint64_t>(0, 1) != 0;
  conditions.compute_mode = in->Enum(ComputeMode::kUnknown, ComputeMode::kExclusiveProcess);
  if (version >= 2) {
    conditions.self_check = static_cast<uint32_t>(in->Enum<uint64_t>(0, SelfCheckBits()));
  }
}

}  // namespace

std::string PackCandidates(const Tuning& tuning) {
  PackedWriter out(64 + 96 * tuning.candidates.size());
  out.Unsigned(kVersion);
  PackRace(tuning, &out);
  out.Unsigned(tuning.candidates.size());
  for (const Candidate& candidate : tuning.candidates) PackCandidate(candidate, &out);
  return out.Take();
}

bool UnpackCandidates(std::string_view bytes, Tuning* tuning) {
  PackedReader in(bytes);
  const auto version = in.Enum<uint64_t>(1, kVersion);
  UnpackRace(version, &in, tuning);
  tuning->candidates.clear();
  tuning->candidates.resize(in.Count(kLeastCandidateBytes));
  for (Candidate& candidate : tuning->candidates) UnpackCandidate(&in, &candidate);
  return in.done();
}

std::string PackSamples(const std::vector<Candidate>& candidates) {
  const int last = LastPositionWithSamples(candidates);
  if (last < 0) return "";
  size_t samples = 0;
  for (const Candidate& candidate : candidates) samples += candidate.samples_us.size();
  PackedWriter out(1 + 4 * samples + 4 * candidates.size());
  out.Unsigned(kSamplesVersion);
  for (int position = 0; position <= last; ++position) {
    out.Floats(candidates[static_cast<size_t>(position)].samples_us);
  }
  return out.Take();
}

bool UnpackSamples(std::string_view bytes, std::vector<Candidate>* candidates) {
  PackedReader in(bytes);
  if (in.Unsigned() != kSamplesVersion) return false;
  for (size_t position = 0; in.left() > 0; ++position) {
    if (position == candidates->size()) return false;
    (*candidates)[position].samples_us = in.Floats();
  }
  return in.done();
}

int LastPositionWithSamples(const std::vector<Candidate>& candidates) {
  int last = static_cast<int>(candidates.size()) - 1;
  while (last >= 0 && candidates[static_cast<size_t>(last)].samples_us.empty()) --last;
  return last;
}

}  // namespace convtune::db::store
