#include "server/release/observation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "db/snapshot/datagram.h"
#include "db/snapshot/key_convert.h"
#include "proto/base/status_macros.h"
#include "proto/model/tuning/note_rules.h"
#include "proto/model/tuning/ranking.h"

namespace convtune::release {
namespace {

constexpr int64_t kMaxWorkspace = int64_t{1} << 50;
// An hour; a convolution that takes longer is no measurement.
constexpr float kMaxTimeUs = 3.6e9F;

struct Keys {
  TuningKey key;
  Environment environment;
  ConvProblem problem;
};

absl::StatusOr<Keys> ReadKeys(const snapshot::DatagramHeader& header) {
  ASSIGN_OR_RETURN(const ConvProblem problem, snapshot::ToProblem(header.problem));
  ASSIGN_OR_RETURN(Environment environment, snapshot::ToEnvironment(header.environment));
  Keys keys{{problem.ToText(), environment.ToText()}, environment, problem};
  return keys;
}

ReportedTuning Observed(Keys keys, std::vector<Candidate> candidates, absl::Time now) {
  ReportedTuning reported;
  reported.environment = std::move(keys.environment);
  Tuning& tuning = reported.tuning;
  tuning.key = std::move(keys.key);
  tuning.candidates = std::move(candidates);
  tuning.evidence = Evidence::kObserved;
  tuning.tune_time = absl::FromUnixMicros(absl::ToUnixMicros(now));
  AddReason(IncompleteReason::kObserved, "settled on by a program; nothing else was tried",
            &tuning);
  RankCandidates(&tuning.candidates);
  return reported;
}

absl::Status CheckWorkspace(int64_t bytes) {
  if (bytes >= 0 && bytes <= kMaxWorkspace) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("workspace_bytes: must be 0 to ", kMaxWorkspace, ", is ", bytes));
}

absl::StatusOr<Report> ReadPlan(const snapshot::ObservedPlanDatagram& datagram, absl::Time now) {
  ASSIGN_OR_RETURN(Keys keys, ReadKeys(datagram.header));
  RETURN_IF_ERROR(CheckWorkspace(datagram.workspace_bytes));
  if (datagram.engine_index < 0) {
    return absl::InvalidArgumentError("engine_index: must not be negative");
  }
  // What is taken is stored, and a record's reader and a bundle's refuse the rest.
  if (((datagram.numerical_notes | datagram.behavior_notes) & 1) != 0) {
    return absl::InvalidArgumentError("notes: must be those that cuDNN has, from bit 1 on");
  }
  EngineConfig config;
  config.engine_index = datagram.engine_index;
  for (uint32_t i = 0; i < datagram.knob_count; ++i) {
    const auto& knob = datagram.knobs[i];
    if (knob.type < 0 || (!config.knobs.empty() && config.knobs.back().first >= knob.type)) {
      return absl::InvalidArgumentError(
          "knobs: must be of types from 0 on, ordered by type, each type once");
    }
    config.knobs.emplace_back(knob.type, knob.value);
  }
  Candidate candidate;
  candidate.id = std::move(config);
  candidate.numerical_notes = datagram.numerical_notes;
  candidate.behavior_notes = datagram.behavior_notes;
  candidate.workspace_bytes = datagram.workspace_bytes;
  candidate.status = CandidateStatus::kFinalized;
  return Observed(std::move(keys), {std::move(candidate)}, now);
}

absl::StatusOr<Report> ReadLegacy(const snapshot::ObservedLegacyDatagram& datagram,
                                  absl::Time now) {
  ASSIGN_OR_RETURN(Keys keys, ReadKeys(datagram.header));
  std::vector<Candidate> candidates;
  for (uint32_t i = 0; i < datagram.result_count; ++i) {
    const auto& result = datagram.results[i];
    RETURN_IF_ERROR(CheckWorkspace(result.workspace_bytes));
    if (result.algorithm < 0 || result.math_type < 0) {
      return absl::InvalidArgumentError("results: algorithm and math type must not be negative");
    }
    if (!(result.time_us > 0) || result.time_us > kMaxTimeUs) {
      return absl::InvalidArgumentError("results: time_us must be above 0 and at most an hour");
    }
    Candidate candidate;
    candidate.id = LegacyAlgorithm{result.algorithm, result.math_type};
    const bool known =
        std::any_of(candidates.begin(), candidates.end(),
                    [&candidate](const Candidate& c) { return c.id == candidate.id; });
    if (known) continue;
    candidate.numerical_notes = LegacyNotes(keys.problem.operation(), keys.problem.data_type(),
                                            keys.problem.filter_extent(), result.algorithm,
                                            result.math_type, result.deterministic != 0);
    candidate.workspace_bytes = result.workspace_bytes;
    candidate.find_us = result.time_us;
    candidate.status = CandidateStatus::kTimed;
    candidate.samples_ns = {SampleNs(result.time_us)};
    SummarizeSamples(&candidate);
    candidates.push_back(std::move(candidate));
  }
  return Observed(std::move(keys), std::move(candidates), now);
}

absl::StatusOr<Report> ReadMiss(const snapshot::MissDatagram& datagram) {
  ASSIGN_OR_RETURN(const Keys keys, ReadKeys(datagram.header));
  const auto reason = static_cast<snapshot::UnservedReason>(datagram.reason);
  ReportedMiss miss;
  miss.key = keys.key;
  miss.count = datagram.count;
  switch (reason) {
    case snapshot::UnservedReason::kNoEntry:
    case snapshot::UnservedReason::kNoEnvironment:
    case snapshot::UnservedReason::kNoSnapshot:
      miss.wants_tuning = true;
      return miss;
    case snapshot::UnservedReason::kNotNeutral:
    case snapshot::UnservedReason::kRefused:
      return miss;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("reason: must be one that there is, is ", datagram.reason));
}

template <typename Datagram>
Datagram Copy(const void* data) {
  Datagram datagram;
  memcpy(&datagram, data, sizeof datagram);
  return datagram;
}

}  // namespace

absl::StatusOr<Report> ReadReport(const void* data, size_t size, absl::Time now) {
  switch (static_cast<snapshot::DatagramKind>(snapshot::ReadDatagramKind(data, size))) {
    case snapshot::DatagramKind::kMiss:
      return ReadMiss(Copy<snapshot::MissDatagram>(data));
    case snapshot::DatagramKind::kObservedPlan:
      return ReadPlan(Copy<snapshot::ObservedPlanDatagram>(data), now);
    case snapshot::DatagramKind::kObservedLegacy:
      return ReadLegacy(Copy<snapshot::ObservedLegacyDatagram>(data), now);
  }
  return absl::InvalidArgumentError("datagram: is none of ours, or of another version");
}

bool AddsToObserved(const Tuning& stored, Tuning* made) {
  if (stored.evidence != Evidence::kObserved) return stored.evidence < Evidence::kObserved;
  const auto known = [&stored](const Candidate& c) {
    return std::any_of(stored.candidates.begin(), stored.candidates.end(),
                       [&c](const Candidate& s) { return s.id == c.id; });
  };
  // The same program again says the same, though with other times.
  if (std::all_of(made->candidates.begin(), made->candidates.end(), known)) return false;
  for (const Api api : {Api::kGraph, Api::kLegacy}) {
    const auto of_api = [api](const Candidate& c) { return ApiOf(c.id) == api; };
    if (std::any_of(made->candidates.begin(), made->candidates.end(), of_api)) continue;
    std::copy_if(stored.candidates.begin(), stored.candidates.end(),
                 std::back_inserter(made->candidates), of_api);
  }
  RankCandidates(&made->candidates);
  return true;
}

}  // namespace convtune::release
