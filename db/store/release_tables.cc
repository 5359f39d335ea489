#include "db/store/release_tables.h"

#include "absl/time/time.h"
#include "db/store/tables.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"

namespace convtune::db::store {
const sqlite::Table& ReleaseTable() {
  static const sqlite::Table table{
      "releases",
      {"release_number", "state", "canary_permille", "restores", "author", "reason",
       "create_time_us", "end_author", "end_reason", "end_time_us"}};
  return table;
}

const sqlite::Table& ChoiceTable() {
  static const sqlite::Table table{
      "choices",
      {"environment_id", "problem_text", "release_number", "place", "choice_count", "roles",
       "candidate", "evidence", "numerical_notes", "behavior_notes", "workspace_bytes",
       "heuristic_rank", "median_us"}};
  return table;
}

const sqlite::Table& WantedTable() {
  static const sqlite::Table table{"wanted",
                                   {"environment_id", "problem_text", "misses", "first_seen_us",
                                    "last_seen_us", "attempts", "last_error"}};
  return table;
}

absl::StatusOr<Release> ReadRelease(const sqlite::Statement& statement) {
  sqlite::RowReader reader(ReleaseTable(), statement);
  Release release;
  release.number = reader.Int();
  const std::string name = Concat("release ", release.number);
  if (!reader.ChecksumMatches()) return Damaged(ReleaseTable(), name, kBadChecksum);
  release.state = static_cast<ReleaseState>(reader.Int());
  release.canary_permille = static_cast<int>(reader.Int());
  release.restores = reader.Int();
  release.author = reader.Text();
  release.reason = reader.Text();
  release.create_time = absl::FromUnixMicros(reader.Int());
  release.end_author = reader.Text();
  release.end_reason = reader.Text();
  release.end_time = reader.MaybeTime();
  if (release.state < ReleaseState::kPromoted || release.state > ReleaseState::kRolledBack) {
    return Damaged(ReleaseTable(), name, "unknown state");
  }
  return release;
}

absl::StatusOr<ChoiceRow> ReadChoice(const sqlite::Statement& statement) {
  sqlite::RowReader reader(ChoiceTable(), statement);
  ChoiceRow row;
  row.environment_id = reader.Int();
  row.problem_text = reader.Text();
  row.release_number = reader.Int();
  row.place = reader.Int();
  const std::string name =
      Concat("release ", row.release_number, ", ", row.problem_text, ", place ", row.place);
  if (!reader.ChecksumMatches()) return Damaged(ChoiceTable(), name, kBadChecksum);
  row.choice_count = reader.Int();
  row.choice.roles = static_cast<uint32_t>(reader.Int());
  const std::string id = reader.Text();
  Candidate& candidate = row.choice.candidate;
  if (row.choice_count > 0) {
    absl::StatusOr<CandidateId> parsed = ParseCandidateId(id);
    if (!parsed.ok()) {
      return Damaged(ChoiceTable(), name, std::string(parsed.status().message()));
    }
    candidate.id = *std::move(parsed);
  }
  row.evidence = static_cast<Evidence>(reader.Int());
  candidate.numerical_notes = static_cast<uint32_t>(reader.Int());
  candidate.behavior_notes = static_cast<uint32_t>(reader.Int());
  candidate.workspace_bytes = reader.Int();
  candidate.heuristic_rank = static_cast<int>(reader.Int());
  candidate.median_us = reader.Real();
  candidate.status =
      candidate.median_us > 0 ? CandidateStatus::kTimed : CandidateStatus::kFinalized;
  return row;
}

absl::StatusOr<WantedRow> ReadWanted(const sqlite::Statement& statement) {
  sqlite::RowReader reader(WantedTable(), statement);
  WantedRow row;
  row.environment_id = reader.Int();
  WantedProblem& wanted = row.wanted;
  wanted.key.problem_text = reader.Text();
  if (!reader.ChecksumMatches()) {
    return Damaged(WantedTable(), wanted.key.problem_text, kBadChecksum);
  }
  wanted.misses = reader.Int();
  wanted.first_seen = absl::FromUnixMicros(reader.Int());
  wanted.last_seen = absl::FromUnixMicros(reader.Int());
  wanted.attempts = static_cast<int>(reader.Int());
  wanted.last_error = reader.Text();
  return row;
}

absl::Status WriteRelease(const Release& release, sqlite::Statement& statement) {
  return sqlite::RowWriter(ReleaseTable(), statement)
      .Int(release.number)
      .Int(static_cast<int>(release.state))
      .Int(release.canary_permille)
      .Int(release.restores)
      .Text(release.author)
      .Text(release.reason)
      .Int(absl::ToUnixMicros(release.create_time))
      .Text(release.end_author)
      .Text(release.end_reason)
      .MaybeTime(release.end_time)
      .Insert();
}

absl::Status WriteChoice(const ChoiceRow& row, sqlite::Statement& statement) {
  const Candidate& candidate = row.choice.candidate;
  return sqlite::RowWriter(ChoiceTable(), statement)
      .Int(row.environment_id)
      .Text(row.problem_text)
      .Int(row.release_number)
      .Int(row.place)
      .Int(row.choice_count)
      .Int(row.choice.roles)
      .Text(row.choice_count > 0 ? ToText(candidate.id) : "")
      .Int(static_cast<int>(row.evidence))
      .Int(candidate.numerical_notes)
      .Int(candidate.behavior_notes)
      .Int(candidate.workspace_bytes)
      .Int(candidate.heuristic_rank)
      .Real(candidate.timed() ? candidate.median_us : 0)
      .Insert();
}

absl::Status WriteWanted(const WantedRow& row, sqlite::Statement& statement) {
  const WantedProblem& wanted = row.wanted;
  return sqlite::RowWriter(WantedTable(), statement)
      .Int(row.environment_id)
      .Text(wanted.key.problem_text)
      .Int(wanted.misses)
      .Int(absl::ToUnixMicros(wanted.first_seen))
      .Int(absl::ToUnixMicros(wanted.last_seen))
      .Int(wanted.attempts)
      .Text(wanted.last_error)
      .Insert();
}

}  // namespace convtune::db::store
