#include "db/bundle/bundle_codec.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/convert/field_rules.h"
#include "proto/convert/record_codec.h"
#include "proto/model/violation.h"

namespace convtune::db::bundle {
namespace {

constexpr size_t kMaxText = 256;

absl::Status Check(const v1::BundleEnvironment& proto, Environment* environment) {
  absl::StatusOr<Environment> parsed = Environment::Parse(proto.text());
  if (!parsed.ok()) return ViolationError({"text", std::string(parsed.status().message())});
  *environment = *std::move(parsed);
  const std::string slug = std::exchange(environment->gpu_model, proto.gpu_model());
  if (Slug(proto.gpu_model()) != slug) {
    return ViolationError({"gpu_model", Concat("must be the model of text, ", slug)});
  }
  if (const std::string text = environment->ToText(); text != proto.text()) {
    return ViolationError({"text", Concat("must be in its canonical form, ", text)});
  }
  const v1::Provenance& from = proto.provenance();
  std::vector<Violation> broken;
  FieldRules rules(&broken);
  const std::pair<std::string_view, const std::string&> texts[] = {
      {"gpu_model", proto.gpu_model()},
      {"provenance.driver_version", from.driver_version()},
      {"provenance.cuda_version", from.cuda_version()},
      {"provenance.gpu_uuid", from.gpu_uuid()},
      {"provenance.node", from.node()},
      {"provenance.cublaslt_build", from.cublaslt_build()},
      {"provenance.nvrtc_build", from.nvrtc_build()}};
  for (const auto& [field, text] : texts) {
    rules.Require(text.size() <= kMaxText, field,
                  Concat("must have at most ", kMaxText, " bytes, has ", text.size()));
    rules.NoControls(field, text);
  }
  rules.Require(from.memory_bytes() >= 0, "provenance.memory_bytes",
                Concat("must be at least 0, is ", from.memory_bytes()));
  return rules.First();
}

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

// Earlier daemons measured `elapsed` by the wall clock: where that was set back meanwhile, it is
// below 0, and is read as not known.
bool WasSetBack(const v1::Tuning& row) { return FromProto(row.elapsed()) < absl::ZeroDuration(); }

// Why a row is refused in which this field breaks a rule.
v1::RefusalReason ReasonOf(std::string_view field) {
  constexpr std::string_view kMeasured[] = {
      "memory_budget_bytes", "rounds", "stop_reason", "cache_state",
      // Of a candidate.
      "workspace_bytes", "median_us", "find_us", "host_us", "sm_clock_mhz", "error", "sample_count",
      "samples_ns", "other_times", "capture"};
  const std::string_view name = field.substr(field.rfind('.') + 1);  // all of it without a dot
  if (field == "problem_text") return v1::REFUSAL_REASON_PROBLEM;
  if (field == "tune_time" || field == "elapsed") return v1::REFUSAL_REASON_TIME;
  if (field.starts_with("environment.")) return v1::REFUSAL_REASON_ENVIRONMENT;
  if (field.starts_with("conditions.") || std::ranges::count(kMeasured, name) > 0) {
    return v1::REFUSAL_REASON_MEASUREMENT;
  }
  return field.starts_with("candidates") ? v1::REFUSAL_REASON_CANDIDATE
                                         : v1::REFUSAL_REASON_EVIDENCE;
}

// The functions that follow judge what the record's codec does not: numbers, texts, and what fields
// say together.

bool IsTime(double us) { return std::isfinite(us) && us >= 0; }

// Microseconds in the precision that a record keeps its summaries in.
float ToUs(int64_t ns) { return static_cast<float>(static_cast<double>(ns) / 1e3); }

void CheckNotes(const google::protobuf::RepeatedField<int>& notes, std::string_view field,
                FieldRules* rules) {
  rules->Require(
      std::adjacent_find(notes.begin(), notes.end(), std::greater_equal<>()) == notes.end() &&
          (notes.empty() || (*notes.begin() >= 1 && *notes.rbegin() <= kMaxNote)),
      field, "must be numbers from 1 to 31 in order, each once");
}

void CheckPlace(int place, std::string_view field, FieldRules* rules) {
  rules->Require(place >= 0 && place <= HeuristicPlaces::kMost, field, "must be from 0 to 32767");
}

void CheckTimes(const v1::Candidate& row, FieldRules* rules) {
  rules->Require(IsTime(row.median_us()) && IsTime(row.q1_us()) && IsTime(row.q3_us()) &&
                     row.q1_us() <= row.q3_us(),
                 "median_us", "must be finite and at least 0, the quartiles in their order");
  rules->Require(IsTime(row.low_us()) && IsTime(row.high_us()) && row.low_us() <= row.median_us() &&
                     row.median_us() <= row.high_us(),
                 "median_us", "must lie in its interval");
  rules->Require(IsTime(row.find_us()), "find_us", "must be finite and at least 0");
  rules->Require(IsTime(row.host_us()), "host_us", "must be finite and at least 0");
  rules->Require(IsTime(row.sm_clock_mhz()), "sm_clock_mhz", "must be finite and at least 0");
  rules->Require(IsTime(row.error()), "error", "must be finite and at least 0");
  rules->Require(row.sample_count() >= (row.status() == v1::CANDIDATE_STATUS_TIMED ? 1 : 0),
                 "sample_count", "must be at least 1 for a timed candidate");
  const auto& samples = row.samples_ns();
  if (samples.empty()) return;
  rules->Require(std::all_of(samples.begin(), samples.end(), [](int64_t ns) { return ns >= 0; }),
                 "samples_ns", "must be at least 0");
  rules->Require(row.sample_count() <= samples.size(), "sample_count",
                 "must not count more samples than there are");
  const auto [low, high] = std::minmax_element(samples.begin(), samples.end());
  rules->Require(ToUs(*low) <= row.q1_us() && row.q3_us() <= ToUs(*high), "median_us",
                 "must have its quartiles among the samples");
}

void CheckOtherTimes(const v1::Candidate& row, FieldRules* rules) {
  std::pair<int, int> last(0, 0);
  for (const v1::TimeSummary& time : row.other_times()) {
    const std::pair<int, int> place(time.launch(), time.cache_state());
    const bool sound = IsTime(time.median_us()) && IsTime(time.low_us()) &&
                       IsTime(time.high_us()) && time.low_us() <= time.high_us() &&
                       time.sample_count() >= 1;
    rules->Require(sound && last < place, "other_times",
                   "must be finite, each launch and cache state once and in order");
    last = place;
  }
}

// INVALID_ARGUMENT names the field without the candidate.
absl::Status CheckCandidate(const v1::Candidate& row) {
  std::vector<Violation> broken;
  FieldRules rules(&broken);
  CheckNotes(row.numerical_notes(), "numerical_notes", &rules);
  CheckNotes(row.behavior_notes(), "behavior_notes", &rules);
  rules.Require(row.workspace_bytes() >= 0, "workspace_bytes", "must be at least 0");
  rules.Require(row.heuristic_rank() >= -1, "heuristic_rank", "must be at least -1");
  CheckPlace(row.mode_a_place(), "mode_a_place", &rules);
  CheckPlace(row.mode_b_place(), "mode_b_place", &rules);
  CheckPlace(row.fallback_place(), "fallback_place", &rules);
  rules.Require(row.error_message().size() <= kMaxErrorBytes, "error_message",
                "must have at most 65536 bytes");
  CheckTimes(row, &rules);
  CheckOtherTimes(row, &rules);
  return rules.First();
}

void CheckConditions(const v1::Conditions& row, FieldRules* rules) {
  rules->Require(row.other_processes() >= 0, "conditions.other_processes", "must be at least 0");
  rules->Require(row.ecc_errors() >= 0, "conditions.ecc_errors", "must be at least 0");
  rules->Require(row.retried_runs() >= 0, "conditions.retried_runs", "must be at least 0");
  rules->Require(row.unblocked().size() <= kMaxErrorBytes, "conditions.unblocked",
                 "must have at most 65536 bytes");
  rules->Require(
      row.known() || (row.other_processes() == 0 && !row.mps() && row.clock_reasons().empty()),
      "conditions.known", "must be true where conditions are given");
  rules->Require(IsTime(row.power_limit_watts()), "conditions.power_limit_watts",
                 "must be finite and at least 0");
}

void CheckEvidence(const Tuning& tuning, bool profile, FieldRules* rules) {
  const auto count = [&tuning](auto condition) {
    return std::any_of(tuning.candidates.begin(), tuning.candidates.end(), condition);
  };
  const bool timed = count([](const Candidate& c) { return c.timed(); });
  const bool ran = count([](const Candidate& c) { return c.usable(); });
  switch (tuning.evidence) {
    case Evidence::kMeasured:
    case Evidence::kIncomplete:
      rules->Require(timed, "evidence", "needs a candidate that was timed");
      break;
    case Evidence::kObserved:
    case Evidence::kHeuristic:
      rules->Require(ran, "evidence", "needs a candidate that ran");
      break;
    case Evidence::kNone:
      rules->Require(!ran, "evidence", "is required where a candidate ran");
      break;
  }
  rules->Require(tuning.evidence != Evidence::kMeasured ||
                     (tuning.incomplete_reasons == 0 && tuning.incomplete_message.empty()),
                 "incomplete_message", "must be empty for a complete measurement");
  rules->Require(
      tuning.evidence <= Evidence::kHeuristic || !tuning.has(IncompleteReason::kUnjudged),
      "evidence", "must be HEURISTIC where no result could be judged");
  if (tuning.evidence == Evidence::kMeasured && !tuning.conditions.clean()) {
    const std::vector<std::string> marks = Marks(tuning.conditions);
    rules->Add("conditions",
               Concat("must be clean for MEASURED, say ", marks.empty() ? "" : marks.front()));
  }
  rules->Require(!profile || tuning.evidence <= Evidence::kHeuristic, "evidence",
                 "must be HEURISTIC for a profile, on which nothing can be timed");
}

// All that is judged before the row is read.
absl::Status CheckRow(const v1::Tuning& row, const BundleEnvironmentRow& environment,
                      absl::Time now) {
  std::vector<Violation> broken;
  FieldRules rules(&broken);
  if (const std::optional<Violation> of_environment = ViolationIn(environment.status)) {
    rules.Add("environment." + of_environment->field, of_environment->rule);
  }
  const absl::StatusOr<ConvProblem> problem = ConvProblem::Parse(row.problem_text());
  if (!problem.ok()) {
    rules.Add("problem_text", std::string(problem.status().message()));
  } else if (problem->ToText() != row.problem_text()) {
    rules.Add("problem_text", Concat("must be in its canonical form, ", problem->ToText()));
  }
  std::set<int> reasons;
  for (const int reason : row.incomplete_reasons()) {
    rules.Require(v1::IncompleteReason_IsValid(reason) && reason != 0 &&
                      reason != v1::INCOMPLETE_REASON_OUTDATED && reasons.insert(reason).second,
                  "incomplete_reasons", "must be IncompleteReasons other than OUTDATED, each once");
  }
  const absl::Time tune_time = FromProto(row.tune_time());
  rules.Require(IsNormal(row.tune_time()) && tune_time >= absl::UnixEpoch() &&
                    tune_time <= now + kClockTolerance,
                "tune_time", "must be a Timestamp from 1970 to now");
  rules.Require(IsNormal(row.elapsed()) || WasSetBack(row), "elapsed", "must be a Duration");
  rules.Require(row.memory_budget_bytes() >= 0, "memory_budget_bytes", "must be at least 0");
  rules.Require(row.incomplete_message().size() <= kMaxReasonBytes, "incomplete_message",
                "must have at most 4096 bytes");
  rules.Require(row.rounds() >= 0, "rounds", "must be at least 0");
  CheckConditions(row.conditions(), &rules);
  for (int i = 0; rules.ok() && i < row.candidates_size(); ++i) {
    if (const auto of_candidate = ViolationIn(CheckCandidate(row.candidates(i)))) {
      rules.Add(Concat("candidates[", i, "].", of_candidate->field), of_candidate->rule);
    }
  }
  return rules.First();
}

}  // namespace

v1::BundleEnvironment ToBundleEnvironment(int number, const Environment& environment,
                                          const Provenance& provenance) {
  v1::BundleEnvironment proto;
  proto.set_number(number);
  proto.set_text(environment.ToText());
  proto.set_gpu_model(environment.gpu_model);
  *proto.mutable_provenance() = ToProto(provenance);
  return proto;
}

BundleEnvironmentRow FromBundleEnvironment(const v1::BundleEnvironment& proto) {
  BundleEnvironmentRow row;
  row.text = proto.text();
  row.provenance = FromProto(proto.provenance());
  row.status = Check(proto, &row.environment);
  return row;
}

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

absl::StatusOr<Tuning> FromBundleTuning(const v1::Tuning& row,
                                        const BundleEnvironmentRow& environment, absl::Time now) {
  RETURN_IF_ERROR(CheckRow(row, environment, now));
  Tuning tuning;
  RETURN_IF_ERROR(Read(row, &tuning));
  tuning.key = {row.problem_text(), environment.text};
  tuning.provenance = environment.provenance;
  tuning.origin = Origin::kImported;
  if (WasSetBack(row)) tuning.elapsed = absl::ZeroDuration();
  std::vector<Violation> broken;
  FieldRules rules(&broken);
  rules.Require(AreDistinct(tuning.candidates), "candidates", "must each be there once");
  CheckEvidence(tuning, environment.environment.profile, &rules);
  RETURN_IF_ERROR(rules.First());
  return tuning;
}

v1::RefusalReason RefusalReasonOf(const absl::Status& status) {
  const std::optional<Violation> broken = ViolationIn(status);
  return broken ? ReasonOf(broken->field) : v1::REFUSAL_REASON_UNSPECIFIED;
}

}  // namespace convtune::db::bundle
