#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <numeric>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/calls/answer_output.h"
#include "client/cli/commands/commands.h"
#include "client/cli/commands/explain/explain_words.h"
#include "client/cli/input/constraint_args.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/units.h"
#include "client/cli/output/value.h"
#include "proto/base/status_macros.h"
#include "proto/model/tuning/ban.h"

namespace convtune::cli::commands::explain {
namespace {

// `legacy_stock`: what cuDNN would run for callers of the legacy API alone; may
// be nullptr.
std::string Notes(const v1::Candidate& candidate, const v1::Candidate* legacy_stock,
                  const std::string& separator) {
  std::vector<std::string> notes;
  if (candidate.stock()) notes.push_back("stock");
  if (&candidate == legacy_stock) notes.push_back("legacy-stock");
  for (const int note : candidate.numerical_notes()) {
    notes.push_back(output::EnumWord(static_cast<v1::NumericalNote>(note), '-'));
  }
  for (const int note : candidate.behavior_notes()) {
    notes.push_back(output::EnumWord(static_cast<v1::BehaviorNote>(note), '-'));
  }
  return absl::StrJoin(notes, separator);
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

// The interval of the median, as what it leaves open below and above.
std::string Interval(const v1::Candidate& candidate) {
  const double median = candidate.median_us();
  if (!(median > 0)) return "-";
  return absl::StrFormat("-%.1f%% +%.1f%%", 100 * std::max(0.0, 1 - candidate.low_us() / median),
                         100 * std::max(0.0, candidate.high_us() / median - 1));
}

std::string Error(const v1::Candidate& candidate) {
  return candidate.has_error() ? absl::StrFormat("%.1e", candidate.error()) : "-";
}

// `rank` is the candidate's, from 1; 0: the headings alone are wanted.
output::Fields CandidateFields(int rank, const v1::Tuning& tuning,
                               const v1::Candidate* legacy_stock, const v1::Candidate& winner) {
  const v1::Candidate& candidate =
      rank > 0 ? tuning.candidates(rank - 1) : v1::Candidate::default_instance();
  const bool ran = candidate.status() == v1::CANDIDATE_STATUS_TIMED ||
                   candidate.status() == v1::CANDIDATE_STATUS_FINALIZED;
  const bool wins = candidate.text() == winner.text();
  std::string last = Notes(candidate, legacy_stock, " ");
  for (const v1::BannedCandidate& banned : tuning.banned()) {
    if (banned.candidate() != candidate.text()) continue;
    absl::StrAppend(&last, last.empty() ? "" : " ", "banned-by-", banned.ban());
  }
  if (!candidate.error_message().empty()) {
    absl::StrAppend(&last, last.empty() ? "" : ": ", FirstLine(candidate.error_message()));
  }
  const std::string samples = absl::StrCat(candidate.sample_count());
  const int64_t bytes = candidate.workspace_bytes();
  return {
      {"rank", "RANK", rank},
      {"candidate", "CANDIDATE",
       output::Value(candidate.text()).In(wins ? output::Color::kGreen : output::Color::kNone)},
      {"api", "API", candidate.has_legacy_algorithm() ? "legacy" : "graph"},
      {"status", "STATUS",
       output::Value(output::EnumWord(candidate.status(), '-'))
           .In(ran ? output::Color::kNone : output::Color::kRed)},
      {"median_us", "TIME", output::Micros(candidate.median_us())},
      {"q1_us", "", output::Positive(candidate.q1_us())},
      {"q3_us", "", output::Positive(candidate.q3_us())},
      {"low_us", "", output::Positive(candidate.low_us())},
      {"high_us", "", output::Positive(candidate.high_us())},
      {"", "INTERVAL", output::Value(Interval(candidate)).Right()},
      {"host_us", "LAUNCH", output::Micros(candidate.host_us())},
      {"sm_clock_mhz", "", output::Positive(candidate.sm_clock_mhz())},
      {"error", "",
       candidate.has_error() ? std::make_optional<double>(candidate.error()) : std::nullopt},
      {"samples", "SAMPLES",
       output::Value(candidate.sample_count()).Shown(candidate.sample_count() > 0 ? samples : "-")},
      {"", "ERROR", output::Value(Error(candidate)).Right()},
      {"find_us", "", output::Positive(candidate.find_us())},
      {"workspace_bytes", "WORKSPACE",
       output::Value(bytes).Shown(ran || bytes > 0 ? output::FormatBytes(bytes) : "-")},
      {"deterministic", "", candidate.deterministic()},
      {"stock", "", candidate.stock()},
      {"heuristic_rank", "", candidate.heuristic_rank()},
      {"notes", "", Notes(candidate, legacy_stock, ";")},
      {"message", "", candidate.error_message()},
      {"", "NOTES AND ERRORS", last}};
}

class ExplainCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(
        root, "explain", "every candidate of one problem, and why the winner won", app::Rows::kYes);
    problem_.RegisterOne(*app);
    constraints_.Register(*app);
    app::SayColumns(app, CandidateFields(0, {}, nullptr, {}));
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    ASSIGN_OR_RETURN(const auto problem, problem_.ReadOne());
    ASSIGN_OR_RETURN(auto constraints, constraints_.ToProto());
    ASSIGN_OR_RETURN(const auto client, context.Connect());

    v1::GetTuningRequest get;
    get.set_environment(context.settings().environment);
    get.mutable_problem()->set_text(problem.ToText());
    ASSIGN_OR_RETURN(const auto tuning, client->Call<v1::Tuning>(get));
    v1::BatchGetRequest ask;
    ask.set_environment(context.settings().environment);
    *ask.add_problems() = get.problem();
    *ask.mutable_constraints() = std::move(constraints);
    const calls::BatchAnswers answers = calls::BatchGetAll(context, ask, {{problem, 1, "PROBLEM"}},
                                                           context.settings().client.timeout);
    if (answers.rows.empty()) return answers.code;
    Print(context, tuning, answers.rows[0].result, ask.constraints().api());
    return answers.code;
  }

 private:
  static void Print(app::Context& context, const v1::Tuning& tuning,
                    const v1::BatchGetResult& result, v1::Api api) {
    std::ostream& out = context.io().out;
    std::vector<std::string> words = {"No candidate can be the answer: " + result.miss().message()};
    if (result.has_answer()) words = ExplainWinner(result.answer(), tuning.candidates(), api);
    if (context.format() == app::Format::kJson) {
      context.PrintJson({{"tuning", tuning}, {"result", result}, {"why", words}});
      return;
    }
    const bool table = context.format() == app::Format::kTable;
    if (table) {
      out << tuning.problem_text() << "\n"
          << tuning.environment().text() << "\n"
          << "evidence: " << calls::EvidenceWord(tuning.evidence(), tuning.environment().name());
      if (!tuning.incomplete_message().empty()) out << " (" << tuning.incomplete_message() << ")";
      out << ", tuned " << output::FormatTimestamp(tuning.tune_time()) << "\n";
      for (const std::string& line : ExplainRace(tuning)) out << line << "\n";
      for (const v1::Quarantine& entry : tuning.quarantine()) {
        out << "quarantined: " << entry.candidate() << " (" << output::EnumWord(entry.reason(), '-')
            << ", checks of version " << entry.checker_version() << "): " << entry.message()
            << "\n";
      }
      std::map<std::string, int> bans;  // counts by name and reason
      for (const v1::BannedCandidate& banned : tuning.banned()) {
        ++bans[BanNameAndReason(banned.ban(), banned.fleet_ban(), banned.reason())];
      }
      for (const auto& [ban, count] : bans) {
        out << "banned: " << output::Counted(count, "candidate") << " by " << ban << "\n";
      }
      out << "\n";
    }
    std::vector<int> ranks(static_cast<size_t>(tuning.candidates_size()));
    std::iota(ranks.begin(), ranks.end(), 1);
    const v1::Candidate* legacy_stock = StockOf(tuning.candidates(), v1::API_LEGACY);
    context.PrintRows(ranks, [&](int rank) {
      return CandidateFields(rank, tuning, legacy_stock, result.answer().winner());
    });
    if (table) out << "\n" << absl::StrJoin(words, "\n") << "\n";
  }

  input::ProblemArgs problem_;
  input::ConstraintArgs constraints_;
};

}  // namespace

std::unique_ptr<app::Command> NewExplainCommand() { return std::make_unique<ExplainCommand>(); }

}  // namespace convtune::cli::commands::explain
