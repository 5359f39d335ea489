#include "db/bundle/bundle_codec.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/convert/record_codec.h"
#include "proto/model/violation.h"

namespace convtune::db::bundle {
namespace {

constexpr size_t kMaxText = 256;

absl::Status CheckText(const char* field, const std::string& text) {
  if (text.size() > kMaxText) {
    return ViolationError(
        {field, Concat("must have at most ", kMaxText, " bytes, has ", text.size())});
  }
  if (std::any_of(text.begin(), text.end(),
                  [](unsigned char c) { return absl::ascii_iscntrl(c); })) {
    return ViolationError({field, "must not hold control characters"});
  }
  return absl::OkStatus();
}

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
  RETURN_IF_ERROR(CheckText("gpu_model", proto.gpu_model()));
  RETURN_IF_ERROR(CheckText("provenance.driver_version", from.driver_version()));
  RETURN_IF_ERROR(CheckText("provenance.cuda_version", from.cuda_version()));
  RETURN_IF_ERROR(CheckText("provenance.gpu_uuid", from.gpu_uuid()));
  RETURN_IF_ERROR(CheckText("provenance.node", from.node()));
  RETURN_IF_ERROR(CheckText("provenance.cublaslt_build", from.cublaslt_build()));
  RETURN_IF_ERROR(CheckText("provenance.nvrtc_build", from.nvrtc_build()));
  if (from.memory_bytes() >= 0) return absl::OkStatus();
  return ViolationError(
      {"provenance.memory_bytes", Concat("must be at least 0, is ", from.memory_bytes())});
}

constexpr char kReasonUrl[] = "convtune/refusal";
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

// The reason for which a field is refused that the record's own codec refuses.
v1::RefusalReason ReasonOf(std::string_view field) {
  if (field.starts_with("candidates[")) {
    const bool measured = field.ends_with("].capture") || field.ends_with("].other_times");
    return measured ? v1::REFUSAL_REASON_MEASUREMENT : v1::REFUSAL_REASON_CANDIDATE;
  }
  return field.starts_with("conditions.") || field == "stop_reason" || field == "cache_state"
             ? v1::REFUSAL_REASON_MEASUREMENT
             : v1::REFUSAL_REASON_EVIDENCE;
}

// Judges a row by what the record's codec does not: numbers, texts, and what fields say
// together. Remembers the first rule that is broken.
class RowJudge {
 public:
  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }

  // Fields that are named from here on are the candidate's.
  void Enter(int candidate) { candidate_ = candidate; }
  void Leave() { candidate_ = -1; }

  void Refuse(v1::RefusalReason reason, std::string_view field, std::string rule) {
    if (!ok()) return;
    std::string path =
        candidate_ < 0 ? std::string(field) : Concat("candidates[", candidate_, "].", field);
    status_ = ViolationError({std::move(path), std::move(rule)});
    status_.SetPayload(kReasonUrl, absl::Cord(std::to_string(reason)));
  }
  void Require(bool holds, v1::RefusalReason reason, std::string_view field, const char* rule) {
    if (!holds) Refuse(reason, field, rule);
  }

  void CheckCandidate(const v1::Candidate& row) {
    constexpr v1::RefusalReason kReason = v1::REFUSAL_REASON_CANDIDATE;
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
    for (const v1::TimeSummary& time : row.other_times()) {
      const std::pair<int, int> place(time.launch(), time.cache_state());
      const bool sound = IsTime(time.median_us()) && IsTime(time.low_us()) &&
                         IsTime(time.high_us()) && time.low_us() <= time.high_us() &&
                         time.sample_count() >= 1;
      Require(sound && last < place, v1::REFUSAL_REASON_MEASUREMENT, "other_times",
              "must be finite, each launch and cache state once and in order");
      last = place;
    }
  }

  absl::Status status_;
  int candidate_ = -1;
};

void CheckEvidence(const Tuning& tuning, bool profile, RowJudge* judge) {
  const auto count = [&tuning](auto condition) {
    return std::any_of(tuning.candidates.begin(), tuning.candidates.end(), condition);
  };
  const bool timed = count([](const Candidate& c) { return c.timed(); });
  const bool ran = count([](const Candidate& c) { return c.usable(); });
  constexpr v1::RefusalReason kReason = v1::REFUSAL_REASON_EVIDENCE;
  switch (tuning.evidence) {
    case Evidence::kMeasured:
    case Evidence::kIncomplete:
      judge->Require(timed, kReason, "evidence", "needs a candidate that was timed");
      break;
    case Evidence::kObserved:
    case Evidence::kHeuristic:
      judge->Require(ran, kReason, "evidence", "needs a candidate that ran");
      break;
    case Evidence::kNone:
      judge->Require(!ran, kReason, "evidence", "is required where a candidate ran");
      break;
  }
  judge->Require(tuning.evidence != Evidence::kMeasured ||
                     (tuning.incomplete_reasons == 0 && tuning.incomplete_message.empty()),
                 kReason, "incomplete_message", "must be empty for a complete measurement");
  judge->Require(
      tuning.evidence <= Evidence::kHeuristic || !tuning.has(IncompleteReason::kUnjudged), kReason,
      "evidence", "must be HEURISTIC where no result could be judged");
  if (tuning.evidence == Evidence::kMeasured && !tuning.conditions.clean()) {
    const std::vector<std::string> marks = Marks(tuning.conditions);
    judge->Refuse(kReason, "conditions",
                  Concat("must be clean for MEASURED, say ", marks.empty() ? "" : marks.front()));
  }
  judge->Require(!profile || tuning.evidence <= Evidence::kHeuristic, kReason, "evidence",
                 "must be HEURISTIC for a profile, on which nothing can be timed");
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
  RowJudge judge;
  if (const std::optional<Violation> broken = ViolationIn(environment.status)) {
    judge.Refuse(v1::REFUSAL_REASON_ENVIRONMENT, "environment." + broken->field, broken->rule);
  }
  const absl::StatusOr<ConvProblem> problem = ConvProblem::Parse(row.problem_text());
  if (!problem.ok()) {
    judge.Refuse(v1::REFUSAL_REASON_PROBLEM, "problem_text",
                 std::string(problem.status().message()));
  } else if (problem->ToText() != row.problem_text()) {
    judge.Refuse(v1::REFUSAL_REASON_PROBLEM, "problem_text",
                 Concat("must be in its canonical form, ", problem->ToText()));
  }
  std::set<int> reasons;
  for (const int reason : row.incomplete_reasons()) {
    judge.Require(v1::IncompleteReason_IsValid(reason) && reason != 0 &&
                      reason != v1::INCOMPLETE_REASON_OUTDATED && reasons.insert(reason).second,
                  v1::REFUSAL_REASON_EVIDENCE, "incomplete_reasons",
                  "must be IncompleteReasons other than OUTDATED, each once");
  }
  const absl::Time tune_time = FromProto(row.tune_time());
  judge.Require(IsNormal(row.tune_time()) && tune_time >= absl::UnixEpoch() &&
                    tune_time <= now + kClockTolerance,
                v1::REFUSAL_REASON_TIME, "tune_time", "must be a Timestamp from 1970 to now");
  // Earlier daemons measured `elapsed` by the wall clock: where that was set back meanwhile, it is
  // below 0, and is read as not known.
  const bool set_back = FromProto(row.elapsed()) < absl::ZeroDuration();
  judge.Require(IsNormal(row.elapsed()) || set_back, v1::REFUSAL_REASON_TIME, "elapsed",
                "must be a Duration");
  judge.Require(row.memory_budget_bytes() >= 0, v1::REFUSAL_REASON_MEASUREMENT,
                "memory_budget_bytes", "must be at least 0");
  judge.Require(row.incomplete_message().size() <= kMaxReasonBytes, v1::REFUSAL_REASON_EVIDENCE,
                "incomplete_message", "must have at most 4096 bytes");
  judge.Require(row.rounds() >= 0, v1::REFUSAL_REASON_MEASUREMENT, "rounds", "must be at least 0");
  judge.CheckConditions(row.conditions());
  for (int i = 0; judge.ok() && i < row.candidates_size(); ++i) {
    judge.Enter(i);
    judge.CheckCandidate(row.candidates(i));
  }
  judge.Leave();
  RETURN_IF_ERROR(judge.status());
  Tuning tuning;
  if (const absl::Status read = Read(row, &tuning); !read.ok()) {
    const Violation broken =
        ViolationIn(read).value_or(Violation{"tuning", std::string(read.message())});
    judge.Refuse(ReasonOf(broken.field), broken.field, broken.rule);
    return judge.status();
  }
  tuning.key = {row.problem_text(), environment.text};
  tuning.provenance = environment.provenance;
  tuning.origin = Origin::kImported;
  if (set_back) tuning.elapsed = absl::ZeroDuration();
  judge.Require(AreDistinct(tuning.candidates), v1::REFUSAL_REASON_CANDIDATE, "candidates",
                "must each be there once");
  CheckEvidence(tuning, environment.environment.profile, &judge);
  RETURN_IF_ERROR(judge.status());
  return tuning;
}

v1::RefusalReason RefusalReasonOf(const absl::Status& status) {
  int reason = v1::REFUSAL_REASON_UNSPECIFIED;
  if (const auto payload = status.GetPayload(kReasonUrl)) {
    static_cast<void>(absl::SimpleAtoi(std::string(*payload), &reason));
  }
  return static_cast<v1::RefusalReason>(reason);
}

}  // namespace convtune::db::bundle
