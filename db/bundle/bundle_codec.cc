#include "db/bundle/bundle_codec.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "db/bundle/bundle_conditions.h"
#include "proto/base/strings.h"
#include "proto/model/tuning/self_check.h"

namespace convtune::db {
namespace {

constexpr size_t kMaxRefusals = 20;
constexpr size_t kMaxReasonBytes = 4096;
constexpr size_t kMaxErrorBytes = 64 << 10;
constexpr int kMaxNote = 31;  // a note is a bit of 32
// Clocks of two machines differ by less.
constexpr absl::Duration kClockTolerance = absl::Hours(24);

template <typename ProtoEnum>
void AddNotes(uint32_t mask, google::protobuf::RepeatedField<int>* out) {
  for (int note = 1; note <= kMaxNote; ++note) {
    if ((mask & (1U << note)) != 0) out->Add(note);
  }
}

v1::BundleCandidate ToRow(const Candidate& candidate, bool with_samples) {
  v1::BundleCandidate row;
  row.set_candidate(ToText(candidate.id));
  row.set_status(static_cast<v1::CandidateStatus>(candidate.status));
  AddNotes<v1::NumericalNote>(candidate.numerical_notes, row.mutable_numerical_notes());
  AddNotes<v1::BehaviorNote>(candidate.behavior_notes, row.mutable_behavior_notes());
  row.set_deterministic(candidate.deterministic);
  row.set_workspace_bytes(candidate.workspace_bytes);
  row.set_heuristic_rank(candidate.heuristic_rank);
  row.set_median_us(candidate.median_us);
  row.set_q1_us(candidate.q1_us);
  row.set_q3_us(candidate.q3_us);
  row.set_sample_count(candidate.sample_count);
  row.set_find_us(candidate.find_us);
  row.set_error_message(candidate.error_message);
  row.set_low_us(candidate.low_us);
  row.set_high_us(candidate.high_us);
  row.set_host_us(candidate.host_us);
  row.set_sm_clock_mhz(candidate.sm_clock_mhz);
  if (candidate.error) row.set_error(*candidate.error);
  row.set_capture(static_cast<v1::CaptureSupport>(candidate.capture));
  for (const TimeSummary& time : candidate.other_times) {
    v1::TimeSummary* other = row.add_other_times();
    other->set_launch(static_cast<v1::LaunchMode>(time.launch));
    other->set_cache_state(static_cast<v1::CacheState>(time.cache_state));
    other->set_median_us(time.median_us);
    other->set_low_us(time.low_us);
    other->set_high_us(time.high_us);
    other->set_sample_count(time.sample_count);
  }
  if (with_samples) {
    row.mutable_samples_us()->Add(candidate.samples_us.begin(), candidate.samples_us.end());
  }
  return row;
}

class RowReader {
 public:
  explicit RowReader(std::vector<BundleRefusal>* refusals) : refusals_(refusals) {}

  bool ok() const { return refusals_->empty(); }

  // Fields that are named from here on are the candidate's.
  void Enter(int candidate) { candidate_ = candidate; }
  void Leave() { candidate_ = -1; }

  void Refuse(v1::RefusalReason reason, std::string_view field, std::string rule) {
    if (refusals_->size() == kMaxRefusals) return;
    std::string path =
        candidate_ < 0 ? std::string(field) : Concat("candidates[", candidate_, "].", field);
    refusals_->push_back({reason, {std::move(path), std::move(rule)}});
  }
  void Require(bool holds, v1::RefusalReason reason, std::string_view field, const char* rule) {
    if (!holds) Refuse(reason, field, rule);
  }

  uint32_t Notes(const google::protobuf::RepeatedField<int>& notes, std::string_view field) {
    uint32_t mask = 0;
    for (const int note : notes) {
      if (note < 1 || note > kMaxNote || (mask & (1U << note)) != 0) {
        Refuse(v1::REFUSAL_REASON_CANDIDATE, field, "must be numbers from 1 to 31, each once");
        return mask;
      }
      mask |= 1U << note;
    }
    return mask;
  }

  Candidate ReadCandidate(const v1::BundleCandidate& row) {
    Candidate out;
    absl::StatusOr<CandidateId> id = ParseCandidateId(row.candidate());
    if (!id.ok()) {
      Refuse(v1::REFUSAL_REASON_CANDIDATE, "candidate", std::string(id.status().message()));
    } else {
      out.id = *std::move(id);
      Require(ToText(out.id) == row.candidate(), v1::REFUSAL_REASON_CANDIDATE, "candidate",
              "must be in its canonical form");
    }
    Require(v1::CandidateStatus_IsValid(row.status()) &&
                row.status() != v1::CANDIDATE_STATUS_UNSPECIFIED,
            v1::REFUSAL_REASON_CANDIDATE, "status", "must be a CandidateStatus");
    out.status = static_cast<CandidateStatus>(row.status());
    out.numerical_notes = Notes(row.numerical_notes(), "numerical_notes");
    out.behavior_notes = Notes(row.behavior_notes(), "behavior_notes");
    out.deterministic = row.deterministic();
    Require(row.workspace_bytes() >= 0, v1::REFUSAL_REASON_MEASUREMENT, "workspace_bytes",
            "must be at least 0");
    out.workspace_bytes = row.workspace_bytes();
    Require(row.heuristic_rank() >= -1, v1::REFUSAL_REASON_CANDIDATE, "heuristic_rank",
            "must be at least -1");
    out.heuristic_rank = row.heuristic_rank();
    Require(row.error_message().size() <= kMaxErrorBytes, v1::REFUSAL_REASON_CANDIDATE,
            "error_message", "must have at most 65536 bytes");
    out.error_message = row.error_message();
    ReadTimes(row, &out);
    ReadInterval(row, &out);
    ReadOtherTimes(row, &out);
    return out;
  }

 private:
  static bool IsTime(double us) { return std::isfinite(us) && us >= 0; }

  void ReadTimes(const v1::BundleCandidate& row, Candidate* out) {
    out->median_us = row.median_us();
    out->q1_us = row.q1_us();
    out->q3_us = row.q3_us();
    out->sample_count = row.sample_count();
    out->find_us = row.find_us();
    out->samples_us.assign(row.samples_us().begin(), row.samples_us().end());
    constexpr v1::RefusalReason kReason = v1::REFUSAL_REASON_MEASUREMENT;
    Require(IsTime(row.median_us()) && IsTime(row.q1_us()) && IsTime(row.q3_us()) &&
                row.q1_us() <= row.q3_us(),
            kReason, "median_us", "must be finite and at least 0, the quartiles in their order");
    Require(IsTime(row.find_us()), kReason, "find_us", "must be finite and at least 0");
    Require(row.sample_count() >= (out->timed() ? 1 : 0), kReason, "sample_count",
            "must be at least 1 for a timed candidate");
    const auto& samples = out->samples_us;
    if (samples.empty()) return;
    Require(std::all_of(samples.begin(), samples.end(), IsTime), kReason, "samples_us",
            "must be finite and at least 0");
    Require(static_cast<size_t>(std::max(row.sample_count(), 0)) <= samples.size(), kReason,
            "sample_count", "must not count more samples than there are");
    const auto [low, high] = std::minmax_element(samples.begin(), samples.end());
    Require(*low <= row.q1_us() && row.q3_us() <= *high, kReason, "median_us",
            "must have its quartiles among the samples");
  }

  void ReadInterval(const v1::BundleCandidate& row, Candidate* out) {
    constexpr v1::RefusalReason kReason = v1::REFUSAL_REASON_MEASUREMENT;
    const bool none = row.low_us() == 0 && row.high_us() == 0;
    out->low_us = none ? row.q1_us() : row.low_us();
    out->high_us = none ? row.q3_us() : row.high_us();
    Require(IsTime(out->low_us) && IsTime(out->high_us) && out->low_us <= out->median_us &&
                out->median_us <= out->high_us,
            kReason, "median_us", "must lie in its interval (the quartiles without one)");
    out->host_us = row.host_us();
    Require(IsTime(row.host_us()), kReason, "host_us", "must be finite and at least 0");
    out->sm_clock_mhz = row.sm_clock_mhz();
    Require(IsTime(row.sm_clock_mhz()), kReason, "sm_clock_mhz", "must be finite and at least 0");
    if (row.has_error()) out->error = row.error();
    Require(IsTime(row.error()), kReason, "error", "must be finite and at least 0");
    Require(v1::CaptureSupport_IsValid(row.capture()), kReason, "capture",
            "must be a CaptureSupport");
    out->capture = static_cast<CaptureSupport>(row.capture());
  }

  void ReadOtherTimes(const v1::BundleCandidate& row, Candidate* out) {
    std::pair<int, int> last(0, 0);
    for (int i = 0; i < row.other_times_size(); ++i) {
      const v1::TimeSummary& time = row.other_times(i);
      const bool named = v1::LaunchMode_IsValid(time.launch()) && time.launch() != 0 &&
                         v1::CacheState_IsValid(time.cache_state()) && time.cache_state() != 0;
      const bool sound = IsTime(time.median_us()) && IsTime(time.low_us()) &&
                         IsTime(time.high_us()) && time.low_us() <= time.high_us() &&
                         time.sample_count() >= 1;
      const std::pair<int, int> place(time.launch(), time.cache_state());
      Require(named && sound && last < place, v1::REFUSAL_REASON_MEASUREMENT,
              Concat("other_times[", i, "]"),
              "must name launch and cache state, each pair once and in order, with finite times");
      if (!ok()) return;
      last = place;
      out->other_times.push_back({static_cast<LaunchMode>(time.launch()),
                                  static_cast<CacheState>(time.cache_state()), time.median_us(),
                                  time.low_us(), time.high_us(), time.sample_count()});
    }
  }

  std::vector<BundleRefusal>* refusals_;
  int candidate_ = -1;
};

void CheckEvidence(const Tuning& tuning, bool profile, RowReader* reader) {
  const auto count = [&tuning](auto condition) {
    return std::any_of(tuning.candidates.begin(), tuning.candidates.end(), condition);
  };
  const bool timed = count([](const Candidate& c) { return c.timed(); });
  const bool ran = count([](const Candidate& c) { return c.usable(); });
  constexpr v1::RefusalReason kReason = v1::REFUSAL_REASON_EVIDENCE;
  switch (tuning.evidence) {
    case Evidence::kMeasured:
    case Evidence::kIncomplete:
      reader->Require(timed, kReason, "evidence", "needs a candidate that was timed");
      break;
    case Evidence::kObserved:
    case Evidence::kHeuristic:
      reader->Require(ran, kReason, "evidence", "needs a candidate that ran");
      break;
    case Evidence::kNone:
      reader->Require(!ran, kReason, "evidence", "is required where a candidate ran");
      break;
    default:
      reader->Refuse(kReason, "evidence", "must be an Evidence");
  }
  reader->Require(tuning.evidence != Evidence::kMeasured ||
                      (tuning.incomplete == 0 && tuning.incomplete_reason.empty()),
                  kReason, "incomplete_reason", "must be empty for a complete measurement");
  reader->Require(
      tuning.evidence <= Evidence::kHeuristic || !tuning.has(IncompleteReason::kUnjudged), kReason,
      "evidence", "must be HEURISTIC where no result could be judged");
  if (tuning.evidence == Evidence::kMeasured && !tuning.conditions.clean()) {
    const std::vector<std::string> marks = Marks(tuning.conditions);
    reader->Refuse(kReason, "conditions",
                   Concat("must be clean for MEASURED, say ", marks.empty() ? "" : marks.front()));
  }
  reader->Require(!profile || tuning.evidence <= Evidence::kHeuristic, kReason, "evidence",
                  "must be HEURISTIC for a profile, on which nothing can be timed");
}

}  // namespace

v1::BundleTuning ToBundleTuning(const Tuning& tuning, int environment, bool with_samples) {
  v1::BundleTuning row;
  row.set_environment(environment);
  row.set_problem(tuning.key.problem_text);
  row.set_evidence(static_cast<v1::Evidence>(tuning.evidence));
  row.set_tune_time_us(absl::ToUnixMicros(tuning.tune_time));
  row.set_elapsed_us(absl::ToInt64Microseconds(tuning.elapsed));
  row.set_memory_budget_bytes(tuning.memory_budget_bytes);
  row.set_incomplete_reason(tuning.incomplete_reason);
  for (int reason = v1::IncompleteReason_MIN + 1; reason <= v1::IncompleteReason_MAX; ++reason) {
    if (!tuning.has(static_cast<IncompleteReason>(reason))) continue;
    row.add_incomplete(static_cast<v1::IncompleteReason>(reason));
  }
  row.set_stop_reason(static_cast<v1::StopReason>(tuning.stop_reason));
  row.set_rounds(tuning.rounds);
  row.set_cache_state(static_cast<v1::CacheState>(tuning.cache_state));
  if (tuning.conditions.known) *row.mutable_conditions() = ToBundleConditions(tuning.conditions);
  row.set_self_check(tuning.conditions.self_check);
  for (const Candidate& candidate : tuning.candidates) {
    *row.add_candidates() = ToRow(candidate, with_samples);
  }
  return row;
}

std::optional<Tuning> FromBundleTuning(const v1::BundleTuning& row,
                                       const BundleEnvironmentRow& environment, absl::Time now,
                                       std::vector<BundleRefusal>* refusals) {
  refusals->clear();
  RowReader reader(refusals);
  for (const Violation& violation : environment.violations) {
    reader.Refuse(v1::REFUSAL_REASON_ENVIRONMENT, "environment." + violation.field, violation.rule);
  }
  const absl::StatusOr<ConvProblem> problem = ConvProblem::Parse(row.problem());
  if (!problem.ok()) {
    reader.Refuse(v1::REFUSAL_REASON_PROBLEM, "problem", std::string(problem.status().message()));
  } else if (problem->ToText() != row.problem()) {
    reader.Refuse(v1::REFUSAL_REASON_PROBLEM, "problem",
                  Concat("must be in its canonical form, ", problem->ToText()));
  }
  Tuning tuning;
  tuning.key = {row.problem(), environment.text};
  tuning.provenance = environment.provenance;
  tuning.origin = Origin::kImported;
  tuning.evidence = static_cast<Evidence>(row.evidence());
  tuning.tune_time = absl::FromUnixMicros(row.tune_time_us());
  tuning.elapsed = absl::Microseconds(row.elapsed_us());
  tuning.memory_budget_bytes = row.memory_budget_bytes();
  tuning.incomplete_reason = row.incomplete_reason();
  for (const int reason : row.incomplete()) {
    const bool known = v1::IncompleteReason_IsValid(reason) && reason != 0 &&
                       reason != v1::INCOMPLETE_REASON_OUTDATED;
    reader.Require(known, v1::REFUSAL_REASON_EVIDENCE, "incomplete",
                   "must be IncompleteReasons other than OUTDATED");
    if (known) tuning.incomplete |= ReasonBit(static_cast<IncompleteReason>(reason));
  }
  reader.Require(row.tune_time_us() >= 0 && tuning.tune_time <= now + kClockTolerance,
                 v1::REFUSAL_REASON_TIME, "tune_time_us", "must be from 1970 to now");
  reader.Require(row.elapsed_us() >= 0, v1::REFUSAL_REASON_TIME, "elapsed_us",
                 "must be at least 0");
  reader.Require(row.memory_budget_bytes() >= 0, v1::REFUSAL_REASON_MEASUREMENT,
                 "memory_budget_bytes", "must be at least 0");
  reader.Require(row.incomplete_reason().size() <= kMaxReasonBytes, v1::REFUSAL_REASON_EVIDENCE,
                 "incomplete_reason", "must have at most 4096 bytes");
  reader.Require(v1::StopReason_IsValid(row.stop_reason()) && row.rounds() >= 0 &&
                     v1::CacheState_IsValid(row.cache_state()),
                 v1::REFUSAL_REASON_MEASUREMENT, "stop_reason",
                 "must be a StopReason, with rounds of at least 0 and a CacheState");
  tuning.stop_reason = static_cast<StopReason>(row.stop_reason());
  tuning.rounds = row.rounds();
  if (row.cache_state() != v1::CACHE_STATE_UNSPECIFIED) {
    tuning.cache_state = static_cast<CacheState>(row.cache_state());
  }
  if (row.has_conditions()) {
    if (auto violation = FromBundleConditions(row.conditions(), &tuning.conditions)) {
      reader.Refuse(v1::REFUSAL_REASON_MEASUREMENT, violation->field, violation->rule);
    }
  }
  tuning.conditions.self_check = row.self_check();
  const SelfCheck self_check = SelfCheckOfMask(row.self_check());
  reader.Require(ToMask(self_check) == row.self_check(), v1::REFUSAL_REASON_MEASUREMENT,
                 "self_check", "must be 0, or have bit 0 and no bit that stands for nothing");
  // Equal ids have equal texts, since those are canonical.
  absl::flat_hash_set<absl::string_view> seen;
  seen.reserve(static_cast<size_t>(row.candidates_size()));
  tuning.candidates.reserve(static_cast<size_t>(row.candidates_size()));
  for (int i = 0; i < row.candidates_size(); ++i) {
    reader.Enter(i);
    tuning.candidates.push_back(reader.ReadCandidate(row.candidates(i)));
    reader.Require(seen.insert(row.candidates(i).candidate()).second, v1::REFUSAL_REASON_CANDIDATE,
                   "candidate", "must be there once");
    if (refusals->size() == kMaxRefusals) return std::nullopt;
  }
  reader.Leave();
  CheckEvidence(tuning, environment.environment.profile, &reader);
  return reader.ok() ? std::make_optional(std::move(tuning)) : std::nullopt;
}

}  // namespace convtune::db
