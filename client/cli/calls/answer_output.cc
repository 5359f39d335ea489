#include "client/cli/calls/answer_output.h"

#include <map>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/json.h"
#include "client/cli/output/units.h"
#include "proto/model/environment.h"
#include "proto/model/tuning/ban.h"

namespace convtune::cli::calls {
namespace {

// A number as short as it can be without loss.
std::string Number(double value) { return absl::StrFormat("%.6g", value); }

// The first of them, "eng34,k2=5 (12.5 us) +1": a table has no room for more.
std::string RunnersUp(const v1::Answer& answer) {
  if (answer.runners_up().empty()) return "-";
  const v1::Candidate& first = answer.runners_up(0);
  std::string out = first.text().substr(first.text().find(':') + 1);
  if (first.median_us() > 0) {
    absl::StrAppend(&out, " (", output::FormatMicroseconds(first.median_us()), ")");
  }
  if (answer.runners_up_size() > 1) absl::StrAppend(&out, " +", answer.runners_up_size() - 1);
  return out;
}

// "cuDNN 9.12.0 (nvidia-h200)"; the name alone where the text cannot be read.
std::string HintSource(const v1::Answer& hint) {
  const absl::StatusOr<Environment> environment = Environment::Parse(hint.environment_text());
  if (!environment.ok()) return hint.environment();
  return absl::StrCat("cuDNN ", environment->cudnn.ToText(), " (", hint.environment(), ")");
}

std::string MissNote(const v1::Miss& miss) {
  std::string note = miss.message().empty() ? output::EnumWord(miss.reason()) : miss.message();
  if (!miss.job().empty()) absl::StrAppend(&note, "; queued as ", miss.job());
  if (miss.has_hint()) {
    absl::StrAppend(&note, "; hint from ", HintSource(miss.hint()), ": ",
                    miss.hint().winner().text());
  }
  return note;
}

// Each ban once, with the answers that would have another winner without it.
void SayBans(app::Context& context, const std::vector<AnswerRow>& rows) {
  std::map<std::string, int> bans;  // counts by name and reason
  for (const AnswerRow& row : rows) {
    if (!row.result.answer().has_banned()) continue;
    const v1::BannedCandidate& banned = row.result.answer().banned();
    ++bans[BanNameAndReason(banned.ban(), banned.fleet_ban(), banned.reason())];
  }
  for (const auto& [ban, count] : bans) {
    context.Say(
        absl::StrCat(count, count == 1 ? " answer is" : " answers are", " another for ", ban));
  }
}

std::string AnswerJson(const std::vector<AnswerRow>& rows) {
  std::vector<std::string> results;
  for (const AnswerRow& row : rows) {
    results.push_back(output::JsonObject().Add("row", row.source).AddMembers(row.result).Take());
  }
  return output::JsonArray(results);
}

std::string InvalidJson(const std::vector<ProblemRowError>& errors) {
  std::vector<std::string> elements;
  for (const ProblemRowError& error : errors) {
    elements.push_back(
        output::JsonObject().Add("row", error.source).Add("message", error.message).Take());
  }
  return output::JsonArray(elements);
}

// Heading and a line for each row; the columns are in deploy/docs/cli.md.
std::string AnswerCsv(const BatchAnswers& answers) {
  std::string out = output::CsvLine({"row",         "problem",   "outcome",         "winner",
                                     "evidence",    "origin",    "pinned",          "time_us",
                                     "q1_us",       "q3_us",     "workspace_bytes", "deterministic",
                                     "candidates",  "eligible",  "portfolio",       "persisted",
                                     "environment", "tuning_id", "reason",          "job"});
  for (const AnswerRow& row : answers.rows) {
    const v1::BatchGetResult& result = row.result;
    if (!result.has_answer()) {
      // The columns from winner to persisted are an answer's.
      std::vector<std::string> fields = {row.source, result.problem_text(), "miss"};
      fields.resize(16);
      fields.insert(fields.end(), {answers.environment.name(), result.tuning_id(),
                                   MissNote(result.miss()), result.miss().job()});
      out += output::CsvLine(fields);
      continue;
    }
    const v1::Answer& answer = result.answer();
    const v1::Candidate& winner = answer.winner();
    const bool timed = winner.status() == v1::CANDIDATE_STATUS_TIMED;
    std::vector<std::string> portfolio;
    for (const v1::Candidate& candidate : answer.portfolio()) portfolio.push_back(candidate.text());
    out += output::CsvLine({row.source,
                            result.problem_text(),
                            "answer",
                            winner.text(),
                            output::EnumWord(answer.evidence()),
                            output::EnumWord(answer.origin()),
                            answer.pinned() ? "true" : "false",
                            timed ? Number(winner.median_us()) : "",
                            timed ? Number(winner.q1_us()) : "",
                            timed ? Number(winner.q3_us()) : "",
                            absl::StrCat(winner.workspace_bytes()),
                            winner.deterministic() ? "true" : "false",
                            absl::StrCat(answer.candidate_count()),
                            absl::StrCat(answer.eligible_count()),
                            absl::StrJoin(portfolio, ";"),
                            answer.persisted() ? "true" : "false",
                            answer.environment(),
                            answer.tuning_id(),
                            answer.pinned() ? answer.pin_reason() : answer.note(),
                            ""});
  }
  return out;
}

}  // namespace

std::string NotPublishedWord(int64_t count, v1::Evidence least) {
  return absl::StrCat(count, count == 1 ? " problem is" : " problems are",
                      " not published: evidence below ", output::EnumWord(least),
                      " (--publish-evidence)");
}

output::Color EvidenceColor(v1::Evidence evidence) {
  return evidence >= v1::EVIDENCE_MEASURED ? output::Color::kGreen : output::Color::kYellow;
}

std::string EvidenceWord(v1::Evidence evidence, std::string_view environment) {
  return absl::StrCat(output::EnumWord(evidence), IsSimulated(environment) ? " (simulated)" : "");
}

output::Table AnswerTable(const std::vector<AnswerRow>& rows) {
  output::Table table({{"PROBLEM"},
                       {"WINNER"},
                       {"EVIDENCE"},
                       {"TIME", output::Align::kRight},
                       {"WORKSPACE", output::Align::kRight},
                       {"RUNNERS-UP"}});
  for (const AnswerRow& row : rows) {
    const std::string problem = input::ShortProblem(row.result.problem_text());
    if (!row.result.has_answer()) {
      table.Add(
          {problem, "-", {"miss", output::Color::kRed}, "-", "-", MissNote(row.result.miss())});
      continue;
    }
    const v1::Answer& answer = row.result.answer();
    const std::string evidence = absl::StrCat(
        EvidenceWord(answer.evidence(), answer.environment()), answer.pinned() ? ", pinned" : "",
        answer.has_banned() ? ", " : "", answer.banned().ban());
    table.Add({problem,
               answer.winner().text(),
               {evidence, EvidenceColor(answer.evidence())},
               output::FormatMicroseconds(answer.winner().median_us()),
               output::FormatBytes(answer.winner().workspace_bytes()),
               RunnersUp(answer)});
  }
  return table;
}

void PrintAnswers(app::Context& context, const BatchAnswers& answers,
                  const std::vector<ProblemRowError>& invalid, const std::string& jobs) {
  std::ostream& out = context.io().out;
  if (context.format() == app::Format::kCsv) {
    out << AnswerCsv(answers);
  } else if (context.format() == app::Format::kTable) {
    if (answers.rows.empty()) return;
    out << AnswerTable(answers.rows).Render(context.table_width(), context.out_color());
    SayBans(context, answers.rows);
  } else {
    std::vector<ProblemRowError> errors = invalid;
    errors.insert(errors.end(), answers.errors.begin(), answers.errors.end());
    output::JsonObject document;
    if (!jobs.empty()) document.AddRaw("jobs", jobs);
    document.Add("environment", answers.environment);
    document.AddRaw("results", AnswerJson(answers.rows));
    document.AddRaw("invalid", InvalidJson(errors));
    out << document.Take() << "\n";
  }
}

}  // namespace convtune::cli::calls
