#include "db/bundle/bundle_codec.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "proto/base/strings.h"
#include "proto/convert/record_codec.h"

namespace convtune::db::bundle {
namespace {

constexpr size_t kMaxRefusals = 20;
constexpr size_t kMaxReasonBytes = 4096;
constexpr size_t kMaxErrorBytes = 64 << 10;
constexpr int kMaxNote = 31;  // a note is a bit of 32
// Clocks of two machines differ by less.
constexpr absl::Duration kClockTolerance = absl::Hours(24);

bool AreDistinct(const std::vector<Candidate>& candidates) {
  std::vector<const CandidateId*> ids;
  ids.reserve(candidates.size());
  for (const Candidate& candidate : candidates) ids.push_back(&candidate.id);
  std::sort(ids.begin(), ids.end(), [](const auto* a, const auto* b) { return *a < *b; });
  return std::adjacent_find(ids.begin(), ids.end(),
                            [](const auto* a, const auto* b) { return *a == *b; }) == ids.end();
}

// False of seconds or nanos that a Timestamp or a Duration cannot have: such a row
// has no JSON form.
template <typename Time>
bool IsNormal(const Time& time) {
  const Time same = ToProto(FromProto(time));
  return same.seconds() == time.seconds() && same.nanos() == time.nanos();
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

  void CheckCandidate(const v1::Candidate& row) {
    constexpr v1::RefusalReason kReason = v1::REFUSAL_REASON_CANDIDATE;
    if (std::optional<Violation> broken = CheckId(row)) {
      Refuse(kReason, broken->field, std::move(broken->rule));
    }
    Require(v1::CandidateStatus_IsValid(row.status()) &&
                row.status() != v1::CANDIDATE_STATUS_UNSPECIFIED,
            kReason, "status", "must be a CandidateStatus");
    CheckNotes(row.numerical_notes(), "numerical_notes");
    CheckNotes(row.behavior_notes(), "behavior_notes");
    Require(row.workspace_bytes() >= 0, v1::REFUSAL_REASON_MEASUREMENT, "workspace_bytes",
            "must be at least 0");
    Require(row.heuristic_rank() >= -1, kReason, "heuristic_rank", "must be at least -1");
    CheckPlace(row.mode_a_place(), "mode_a_place");
    CheckPlace(row.mode_b_place(), "mode_b_place");
    CheckPlace(row.fallback_place(), "fallback_place");
    Require(row.error_message().size() <= kMaxErrorBytes, kReason, "error_message",
            "must have at most 65536 bytes");
    CheckTimes(row);
    CheckOtherTimes(row);
  }

  void CheckConditions(const v1::Conditions& row) {
    constexpr v1::RefusalReason kReason = v1::REFUSAL_REASON_MEASUREMENT;
    Require(row.other_processes() >= 0 && row.ecc_errors() >= 0 && row.retried_runs() >= 0, kReason,
            "conditions", "must have counts of at least 0");
    Require(row.unblocked().size() <= kMaxErrorBytes, kReason, "conditions.unblocked",
            "must have at most 65536 bytes");
    Require(
        row.known() || (row.other_processes() == 0 && !row.mps() && row.clock_reasons().empty()),
        kReason, "conditions.known", "must be true where conditions are given");
    Require(IsTime(row.power_limit_watts()), kReason, "conditions.power_limit_watts",
            "must be finite and at least 0");
    Require(v1::ComputeMode_IsValid(row.compute_mode()), kReason, "conditions.compute_mode",
            "must be a ComputeMode");
    Require(SelfCheckFromProto(row.self_check()).has_value(), kReason, "conditions.self_check",
            "must name instruments, and none where it was not run");
  }

 private:
  static bool IsTime(double us) { return std::isfinite(us) && us >= 0; }
  // Microseconds in the precision that a record keeps its summaries in.
  static float ToUs(int64_t ns) { return static_cast<float>(static_cast<double>(ns) / 1e3); }

  void CheckNotes(const google::protobuf::RepeatedField<int>& notes, std::string_view field) {
    Require(std::adjacent_find(notes.begin(), notes.end(), std::greater_equal<>()) == notes.end() &&
                (notes.empty() || (*notes.begin() >= 1 && *notes.rbegin() <= kMaxNote)),
            v1::REFUSAL_REASON_CANDIDATE, field,
            "must be numbers from 1 to 31 in order, each once");
  }

  void CheckPlace(int place, std::string_view field) {
    Require(place >= 0 && place <= HeuristicPlaces::kMost, v1::REFUSAL_REASON_CANDIDATE, field,
            "must be from 0 to 32767");
  }

  void CheckTimes(const v1::Candidate& row) {
    constexpr v1::RefusalReason kReason = v1::REFUSAL_REASON_MEASUREMENT;
    Require(IsTime(row.median_us()) && IsTime(row.q1_us()) && IsTime(row.q3_us()) &&
                row.q1_us() <= row.q3_us(),
            kReason, "median_us", "must be finite and at least 0, the quartiles in their order");
    Require(IsTime(row.low_us()) && IsTime(row.high_us()) && row.low_us() <= row.median_us() &&
                row.median_us() <= row.high_us(),
            kReason, "median_us", "must lie in its interval");
    Require(IsTime(row.find_us()), kReason, "find_us", "must be finite and at least 0");
    Require(IsTime(row.host_us()), kReason, "host_us", "must be finite and at least 0");
    Require(IsTime(row.sm_clock_mhz()), kReason, "sm_clock_mhz", "must be finite and at least 0");
    Require(IsTime(row.error()), kReason, "error", "must be finite and at least 0");
    Require(v1::CaptureSupport_IsValid(row.capture()), kReason, "capture",
            "must be a CaptureSupport");
    Require(row.sample_count() >= (row.status() == v1::CANDIDATE_STATUS_TIMED ? 1 : 0), kReason,
            "sample_count", "must be at least 1 for a timed candidate");
    const auto& samples = row.samples_ns();
    if (samples.empty()) return;
    Require(std::all_of(samples.begin(), samples.end(), [](int64_t ns) { return ns >= 0; }),
            kReason, "samples_ns", "must be at least 0");
    Require(row.sample_count() <= samples.size(), kReason, "sample_count",
            "must not count more samples than there are");
    const auto [low, high] = std::minmax_element(samples.begin(), samples.end());
    Require(ToUs(*low) <= row.q1_us() && row.q3_us() <= ToUs(*high), kReason, "median_us",
            "must have its quartiles among the samples");
  }

  void CheckOtherTimes(const v1::Candidate& row) {
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
  }
  reader->Require(tuning.evidence != Evidence::kMeasured ||
                      (tuning.incomplete_reasons == 0 && tuning.incomplete_message.empty()),
                  kReason, "incomplete_message", "must be empty for a complete measurement");
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

v1::Tuning ToBundleTuning(const Tuning& tuning, int environment, bool with_samples) {
  v1::Tuning row;
  FillBundleTuning(tuning, environment, with_samples, &row);
  return row;
}

void FillBundleTuning(const Tuning& tuning, int environment, bool with_samples, v1::Tuning* row) {
  Fill(tuning, with_samples, row);
  row->set_problem_text(tuning.key.problem_text);
  row->set_environment_number(environment);
  row->clear_origin();
  row->clear_provenance();
}

std::optional<Tuning> FromBundleTuning(const v1::Tuning& row,
                                       const BundleEnvironmentRow& environment, absl::Time now,
                                       std::vector<BundleRefusal>* refusals) {
  refusals->clear();
  RowReader reader(refusals);
  for (const Violation& violation : environment.violations) {
    reader.Refuse(v1::REFUSAL_REASON_ENVIRONMENT, "environment." + violation.field, violation.rule);
  }
  const absl::StatusOr<ConvProblem> problem = ConvProblem::Parse(row.problem_text());
  if (!problem.ok()) {
    reader.Refuse(v1::REFUSAL_REASON_PROBLEM, "problem_text",
                  std::string(problem.status().message()));
  } else if (problem->ToText() != row.problem_text()) {
    reader.Refuse(v1::REFUSAL_REASON_PROBLEM, "problem_text",
                  Concat("must be in its canonical form, ", problem->ToText()));
  }
  std::set<int> reasons;
  for (const int reason : row.incomplete_reasons()) {
    reader.Require(v1::IncompleteReason_IsValid(reason) && reason != 0 &&
                       reason != v1::INCOMPLETE_REASON_OUTDATED && reasons.insert(reason).second,
                   v1::REFUSAL_REASON_EVIDENCE, "incomplete_reasons",
                   "must be IncompleteReasons other than OUTDATED, each once");
  }
  const absl::Time tune_time = FromProto(row.tune_time());
  reader.Require(IsNormal(row.tune_time()) && tune_time >= absl::UnixEpoch() &&
                     tune_time <= now + kClockTolerance,
                 v1::REFUSAL_REASON_TIME, "tune_time", "must be a Timestamp from 1970 to now");
  reader.Require(IsNormal(row.elapsed()) && FromProto(row.elapsed()) >= absl::ZeroDuration(),
                 v1::REFUSAL_REASON_TIME, "elapsed", "must be a Duration of at least 0");
  reader.Require(row.memory_budget_bytes() >= 0, v1::REFUSAL_REASON_MEASUREMENT,
                 "memory_budget_bytes", "must be at least 0");
  reader.Require(row.incomplete_message().size() <= kMaxReasonBytes, v1::REFUSAL_REASON_EVIDENCE,
                 "incomplete_message", "must have at most 4096 bytes");
  reader.Require(v1::StopReason_IsValid(row.stop_reason()) && row.rounds() >= 0 &&
                     v1::CacheState_IsValid(row.cache_state()),
                 v1::REFUSAL_REASON_MEASUREMENT, "stop_reason",
                 "must be a StopReason, with rounds of at least 0 and a CacheState");
  reader.Require(v1::Evidence_IsValid(row.evidence()), v1::REFUSAL_REASON_EVIDENCE, "evidence",
                 "must be an Evidence");
  reader.Require(v1::Origin_IsValid(row.origin()), v1::REFUSAL_REASON_EVIDENCE, "origin",
                 "must be an Origin");
  reader.CheckConditions(row.conditions());
  for (int i = 0; i < row.candidates_size(); ++i) {
    reader.Enter(i);
    reader.CheckCandidate(row.candidates(i));
    if (refusals->size() == kMaxRefusals) return std::nullopt;
  }
  reader.Leave();
  Tuning tuning;
  if (const absl::Status read = Read(row, &tuning); !read.ok()) {
    if (reader.ok()) {
      reader.Refuse(v1::REFUSAL_REASON_EVIDENCE, "tuning",
                    Concat("must be one of this version: ", read.message()));
    }
    return std::nullopt;
  }
  tuning.key = {row.problem_text(), environment.text};
  tuning.provenance = environment.provenance;
  tuning.origin = Origin::kImported;
  reader.Require(AreDistinct(tuning.candidates), v1::REFUSAL_REASON_CANDIDATE, "candidates",
                 "must each be there once");
  CheckEvidence(tuning, environment.environment.profile, &reader);
  return reader.ok() ? std::make_optional(std::move(tuning)) : std::nullopt;
}

}  // namespace convtune::db::bundle
