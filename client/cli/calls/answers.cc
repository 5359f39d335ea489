#include "client/cli/calls/answers.h"

#include <ostream>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/units.h"
#include "client/cpp/client.h"
#include "proto/model/environment.h"
#include "proto/model/tuning/ban.h"

namespace convtune::cli::calls {
namespace {

// The daemon's most; a channel takes more.
constexpr int64_t kMaxAnswerBytes = 64 << 20;

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
    context.Say(output::Counted(count, "answer is", "answers are"), " another for ", ban);
  }
}

output::Json AnswerJson(const std::vector<AnswerRow>& rows) {
  std::vector<output::Json> results;
  for (const AnswerRow& row : rows) {
    results.push_back(output::JsonMerged(output::JsonRow({{"row", row.source}}),
                                         output::JsonMessage(row.result)));
  }
  return output::JsonArray(results);
}

output::Fields ErrorFields(const ProblemRowError& error) {
  return {{"row", "", error.source}, {"message", "", error.message}};
}

}  // namespace

std::vector<std::vector<const ProblemRow*>> SplitIntoRequests(const std::vector<ProblemRow>& rows) {
  std::vector<std::vector<const ProblemRow*>> parts;
  client::RequestSplitter splitter;
  for (const ProblemRow& row : rows) {
    if (splitter.Begins(row.problem.ToText().size())) parts.emplace_back();
    parts.back().push_back(&row);
  }
  return parts;
}

bool TakeRefused(app::Context& context, const absl::Status& status,
                 std::vector<const ProblemRow*>* rows, std::vector<ProblemRowError>* errors) {
  std::set<size_t> refused;
  for (const auto& [place, words] : client::RefusedProblems(status, rows->size())) {
    refused.insert(place);
    errors->push_back({(*rows)[place]->source, words});
    context.SayError(errors->back().source, ": ", words);
  }
  if (refused.empty()) return false;
  std::vector<const ProblemRow*> left;
  for (size_t i = 0; i < rows->size(); ++i) {
    if (refused.count(i) == 0) left.push_back((*rows)[i]);
  }
  *rows = std::move(left);
  return true;
}

BatchAnswers BatchGetAll(app::Context& context, const v1::BatchGetRequest& request,
                         const std::vector<ProblemRow>& rows,
                         std::optional<absl::Duration> timeout) {
  BatchAnswers answers;
  v1::BatchGetRequest base = request;
  base.set_environment(context.settings().environment);
  base.clear_problems();
  base.set_max_reply_bytes(kMaxAnswerBytes);
  const auto client = context.Connect();
  if (!client.ok()) {
    answers.code = context.Fail(client.status());
    return answers;
  }
  const absl::Duration most = timeout.value_or(context.settings().client.timeout);
  for (std::vector<const ProblemRow*>& asked : SplitIntoRequests(rows)) {
    auto response = (*client)->BatchGet(WithProblems(base, asked), most);
    if (!response.ok() && TakeRefused(context, response.status(), &asked, &answers.errors)) {
      answers.code = app::Worse(answers.code, app::ExitCode::kUsage);
      if (asked.empty()) continue;
      response = (*client)->BatchGet(WithProblems(base, asked), most);
    }
    if (!response.ok()) {
      answers.code = app::Worse(answers.code, context.Fail(response.status()));
      return answers;
    }
    answers.environment = response->environment();
    for (size_t i = 0; i < asked.size(); ++i) {
      AnswerRow row{asked[i]->source, std::move(*response->mutable_results(static_cast<int>(i)))};
      answers.code = app::Worse(answers.code, ExitCodeOf(row.result));
      answers.rows.push_back(std::move(row));
    }
  }
  return answers;
}

app::ExitCode ExitCodeOf(const v1::BatchGetResult& result) {
  if (result.has_answer()) return app::ExitCode::kDone;
  return result.miss().reason() == v1::MISS_REASON_TUNING_FAILED ? app::ExitCode::kFailed
                                                                 : app::ExitCode::kMiss;
}

std::optional<ConvProblem> Vary(const ConvProblem& problem, const ProblemOverrides& overrides) {
  std::istringstream text(problem.ToText());
  const ProblemList list = ReadProblemList(text, "", overrides);
  return list.rows.empty() ? std::nullopt : std::make_optional(list.rows[0].problem);
}

absl::Status GetTunings(app::Context& context, const std::string& environment,
                        const std::vector<ProblemRow>& rows, TuningMap* tunings, SteadyTime end) {
  for (const ProblemRow& row : rows) {
    const std::string text = row.problem.ToText();
    if (tunings->count(text) > 0) continue;
    if (SteadyTime::Now() >= end) break;
    v1::GetTuningRequest request;
    request.set_environment(environment);
    request.mutable_problem()->set_text(text);
    auto tuning = context.Call<v1::Tuning>(request);
    if (tuning.ok()) {
      tunings->emplace(text, *std::move(tuning));
    } else if (!absl::IsNotFound(tuning.status())) {
      return tuning.status();
    }
  }
  return absl::OkStatus();
}

std::string NotPublishedWord(int64_t count, v1::Evidence least) {
  return absl::StrCat(output::Counted(count, "problem is", "problems are"),
                      " not published: evidence below ", output::EnumWord(least),
                      " (--publish-evidence)");
}

output::Color EvidenceColor(v1::Evidence evidence) {
  return evidence >= v1::EVIDENCE_MEASURED ? output::Color::kGreen : output::Color::kYellow;
}

std::string EvidenceWord(v1::Evidence evidence, std::string_view environment) {
  return absl::StrCat(output::EnumWord(evidence), IsSimulated(environment) ? " (simulated)" : "");
}

output::Value EvidenceValue(v1::Evidence evidence, std::string_view environment) {
  return output::Value(output::EnumWord(evidence))
      .Shown(EvidenceWord(evidence, environment))
      .In(EvidenceColor(evidence));
}

output::Fields AnswerFields(const AnswerRow& row, const v1::Environment& environment) {
  const v1::BatchGetResult& result = row.result;
  const v1::Answer& answer = result.answer();
  const v1::Candidate& winner = answer.winner();
  const bool has = result.has_answer();
  const bool timed = winner.status() == v1::CANDIDATE_STATUS_TIMED;
  std::vector<std::string> portfolio;
  for (const v1::Candidate& candidate : answer.portfolio()) portfolio.push_back(candidate.text());
  // The columns from winner to persisted are an answer's.
  const auto of_answer = [has](output::Value value) {
    if (has) return value;
    value.written.clear();
    return value.Shown("-");
  };
  const auto time = [timed](double us) {
    return timed ? output::Value(us) : output::Value(std::optional<double>());
  };
  output::Value evidence = EvidenceValue(answer.evidence(), answer.environment());
  evidence.Shown(absl::StrCat(*evidence.shown, answer.pinned() ? ", pinned" : "",
                              answer.has_banned() ? ", " : "", answer.banned().ban()));
  return {{"row", "", row.source},
          {"problem", "PROBLEM", input::ProblemValue(result.problem_text())},
          {"outcome", "", has ? "answer" : "miss"},
          {"winner", "WINNER", of_answer(winner.text())},
          {"evidence", "EVIDENCE",
           has ? evidence : output::Value("").Shown("miss").In(output::Color::kRed)},
          {"origin", "", of_answer(output::EnumWord(answer.origin()))},
          {"pinned", "", of_answer(answer.pinned())},
          {"time_us", "TIME",
           time(winner.median_us()).Shown(output::FormatMicroseconds(winner.median_us()))},
          {"q1_us", "", time(winner.q1_us())},
          {"q3_us", "", time(winner.q3_us())},
          {"workspace_bytes", "WORKSPACE", of_answer(output::Bytes(winner.workspace_bytes()))},
          {"deterministic", "", of_answer(winner.deterministic())},
          {"candidates", "", of_answer(answer.candidate_count())},
          {"eligible", "", of_answer(answer.eligible_count())},
          {"portfolio", "", absl::StrJoin(portfolio, ";")},
          {"persisted", "", of_answer(answer.persisted())},
          {"environment", "", has ? answer.environment() : environment.name()},
          {"tuning_id", "", has ? answer.tuning_id() : result.tuning_id()},
          {"reason", "",
           !has              ? MissNote(result.miss())
           : answer.pinned() ? answer.pin_reason()
                             : answer.note()},
          {"job", "", has ? "" : result.miss().job()},
          {"", "RUNNERS-UP", has ? RunnersUp(answer) : MissNote(result.miss())}};
}

void PrintAnswers(app::Context& context, const BatchAnswers& answers,
                  const std::vector<ProblemRowError>& invalid,
                  const std::vector<v1::TuningJob>* jobs) {
  const auto fields_of = [&](const AnswerRow& row) {
    return AnswerFields(row, answers.environment);
  };
  context.PrintRows(answers.rows, fields_of);
  if (context.format() == app::Format::kTable) SayBans(context, answers.rows);
  if (context.format() != app::Format::kJson) return;
  std::vector<ProblemRowError> errors = invalid;
  errors.insert(errors.end(), answers.errors.begin(), answers.errors.end());
  output::Fields document;
  if (jobs != nullptr) document.push_back({"jobs", output::JsonMessages(*jobs)});
  document.push_back({"environment", answers.environment});
  document.push_back({"results", AnswerJson(answers.rows)});
  document.push_back({"invalid", output::JsonRows(errors, ErrorFields)});
  context.PrintJson(document);
}

}  // namespace convtune::cli::calls
