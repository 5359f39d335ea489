#include "client/cpp/snapshot_answers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "db/snapshot/key_convert.h"
#include "proto/base/status_macros.h"
#include "proto/convert/record_codec.h"
#include "proto/model/tuning/candidate.h"

namespace convtune::client {
namespace {

constexpr size_t kPortfolio = 3;

}  // namespace

absl::StatusOr<std::unique_ptr<SnapshotAnswers>> SnapshotAnswers::Open(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", snapshot::kSnapshotFile);
  std::unique_ptr<SnapshotAnswers> answers(new SnapshotAnswers());
  const char* reason = "";
  if (!answers->file_.Read(path.c_str(), &reason)) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": ", reason));
  }
  answers->path_ = path;
  for (uint32_t i = 0; i < answers->file_.view().section_count(); ++i) {
    const snapshot::SnapshotSection& section = answers->file_.view().section(i);
    if (section.channel != static_cast<uint32_t>(snapshot::Channel::kStable)) continue;
    ASSIGN_OR_RETURN(convtune::Environment known, snapshot::ToEnvironment(section.environment));
    answers->parts_.push_back({&section, std::move(known)});
  }
  return answers;
}

absl::StatusOr<const SnapshotAnswers::Part*> SnapshotAnswers::Choose(
    const std::string& environment, const convtune::Environment& program) const {
  std::vector<const Part*> all, named, fitting;
  for (const Part& part : parts_) {
    const convtune::Environment& known = part.environment;
    all.push_back(&part);
    if (!environment.empty() && environment != known.Name() && environment != known.ToText()) {
      continue;
    }
    named.push_back(&part);
    if (Fits(program, known)) fitting.push_back(&part);
  }
  if (fitting.size() == 1) return fitting[0];
  const std::string texts = absl::StrJoin(
      !fitting.empty() ? fitting
      : !named.empty() ? named
                       : all,
      "; ", [](std::string* out, const Part* part) { out->append(part->environment.ToText()); });
  if (fitting.empty() && !named.empty()) {
    return absl::NotFoundError(absl::StrCat("other environment: the program has ",
                                            KnownText(program), "; ", path_, " has ", texts));
  }
  if (parts_.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_,
                     ": has no environment: convtuned has no device and nothing that it "
                     "publishes; `convtune doctor` says why"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      path_, ": the environment must be one of: ", texts,
      environment.empty() ? "; none is named" : absl::StrCat("; is '", environment, "'")));
}

v1::BatchGetResult SnapshotAnswers::Find(const Part& part, const ConvProblem& problem,
                                         const Terms& terms) const {
  v1::BatchGetResult result;
  result.set_problem_text(problem.ToText());
  const auto miss = [&result](v1::MissReason reason, std::string why) {
    result.mutable_miss()->set_reason(reason);
    result.mutable_miss()->set_message(std::move(why));
    return result;
  };
  const absl::StatusOr<snapshot::ProblemKey> key = snapshot::ToKey(problem);
  const snapshot::SnapshotEntry* entry =
      key.ok() ? file_.view().Find(*part.section, *key, snapshot::HashOf(*key)) : nullptr;
  if (entry == nullptr) {
    return miss(v1::MISS_REASON_NOT_FOUND,
                absl::StrCat("not in the snapshot for ", part.environment.Name()));
  }
  if (entry->evidence < terms.request.min_evidence()) {
    return miss(v1::MISS_REASON_INSUFFICIENT_EVIDENCE,
                "the snapshot's choice has less evidence than asked for");
  }
  if (terms.request.has_max_age() && entry->pinned == 0) {
    return miss(v1::MISS_REASON_TOO_OLD,
                "the snapshot does not say how old its choices are, so none keeps to max_age");
  }
  std::vector<convtune::Candidate> kept;
  const snapshot::SnapshotCandidate* stored = file_.view().candidates(*entry);
  for (int i = 0; i < entry->candidate_count; ++i) {
    convtune::Candidate candidate = snapshot::ToCandidate(file_.view(), stored[i]);
    if (Satisfies(candidate, terms.constraints, problem.data_type())) {
      kept.push_back(std::move(candidate));
    }
  }
  if (kept.empty()) {
    return miss(v1::MISS_REASON_NO_CANDIDATE,
                "none of the snapshot's choices keeps to the constraints");
  }
  // Each API's are in the order in which they are to be offered. Of two first
  // ones, the faster; untimed ones stay as they are.
  const auto other =
      std::find_if(kept.begin(), kept.end(), [&kept](const convtune::Candidate& candidate) {
        return ApiOf(candidate.id) != ApiOf(kept.front().id);
      });
  if (other != kept.end() && other->median_us > 0 && other->median_us < kept.front().median_us) {
    std::rotate(kept.begin(), other, other + 1);
  }
  v1::Answer& answer = *result.mutable_answer();
  answer.set_evidence(static_cast<v1::Evidence>(entry->evidence));
  for (size_t i = 0; i < std::min(kept.size(), kPortfolio); ++i) {
    Fill(kept[i], problem.operation(), answer.add_portfolio());
  }
  *answer.mutable_winner() = answer.portfolio(0);
  return result;
}

}  // namespace convtune::client
