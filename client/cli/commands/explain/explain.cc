#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/calls/answer_output.h"
#include "client/cli/commands/commands.h"
#include "client/cli/commands/explain/explain_words.h"
#include "client/cli/input/constraint_args.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/json.h"
#include "client/cli/output/table.h"
#include "client/cli/output/units.h"
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

std::string ApiWord(const v1::Candidate& candidate) {
  return candidate.has_legacy_algorithm() ? "legacy" : "graph";
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

output::Table CandidateTable(const v1::Tuning& tuning, const std::string& winner) {
  output::Table table({{"RANK", output::Align::kRight},
                       {"CANDIDATE"},
                       {"API"},
                       {"STATUS"},
                       {"TIME", output::Align::kRight},
                       {"INTERVAL", output::Align::kRight},
                       {"LAUNCH", output::Align::kRight},
                       {"SAMPLES", output::Align::kRight},
                       {"ERROR", output::Align::kRight},
                       {"WORKSPACE", output::Align::kRight},
                       {"NOTES AND ERRORS"}});
  const v1::Candidate* legacy_stock = StockOf(tuning.candidates(), v1::API_LEGACY);
  std::map<std::string, std::string> bans;  // by candidate
  for (const v1::BannedCandidate& banned : tuning.banned()) {
    bans[banned.candidate()] = banned.ban();
  }
  for (int i = 0; i < tuning.candidates_size(); ++i) {
    const v1::Candidate& candidate = tuning.candidates(i);
    const bool ran = candidate.status() == v1::CANDIDATE_STATUS_TIMED ||
                     candidate.status() == v1::CANDIDATE_STATUS_FINALIZED;
    std::string last = Notes(candidate, legacy_stock, " ");
    if (const auto ban = bans.find(candidate.text()); ban != bans.end()) {
      absl::StrAppend(&last, last.empty() ? "" : " ", "banned-by-", ban->second);
    }
    if (!candidate.error_message().empty()) {
      absl::StrAppend(&last, last.empty() ? "" : ": ", FirstLine(candidate.error_message()));
    }
    const bool wins = candidate.text() == winner;
    table.Add({absl::StrCat(i + 1),
               {candidate.text(), wins ? output::Color::kGreen : output::Color::kNone},
               ApiWord(candidate),
               {output::EnumWord(candidate.status(), '-'),
                ran ? output::Color::kNone : output::Color::kRed},
               output::FormatMicroseconds(candidate.median_us()),
               Interval(candidate),
               output::FormatMicroseconds(candidate.host_us()),
               candidate.sample_count() > 0 ? absl::StrCat(candidate.sample_count()) : "-",
               Error(candidate),
               ran || candidate.workspace_bytes() > 0
                   ? output::FormatBytes(candidate.workspace_bytes())
                   : "-",
               last});
  }
  return table;
}

std::string CandidateCsv(const v1::Tuning& tuning) {
  std::string out = output::CsvLine({"rank",          "candidate",    "api",
                                     "status",        "median_us",    "q1_us",
                                     "q3_us",         "low_us",       "high_us",
                                     "host_us",       "sm_clock_mhz", "error",
                                     "samples",       "find_us",      "workspace_bytes",
                                     "deterministic", "stock",        "heuristic_rank",
                                     "notes",         "message"});
  const v1::Candidate* legacy_stock = StockOf(tuning.candidates(), v1::API_LEGACY);
  for (int i = 0; i < tuning.candidates_size(); ++i) {
    const v1::Candidate& candidate = tuning.candidates(i);
    const auto number = [](double us) { return us > 0 ? absl::StrFormat("%.6g", us) : ""; };
    out += output::CsvLine({absl::StrCat(i + 1),
                            candidate.text(),
                            ApiWord(candidate),
                            output::EnumWord(candidate.status(), '-'),
                            number(candidate.median_us()),
                            number(candidate.q1_us()),
                            number(candidate.q3_us()),
                            number(candidate.low_us()),
                            number(candidate.high_us()),
                            number(candidate.host_us()),
                            number(candidate.sm_clock_mhz()),
                            candidate.has_error() ? absl::StrFormat("%.6g", candidate.error()) : "",
                            absl::StrCat(candidate.sample_count()),
                            number(candidate.find_us()),
                            absl::StrCat(candidate.workspace_bytes()),
                            candidate.deterministic() ? "true" : "false",
                            candidate.stock() ? "true" : "false",
                            absl::StrCat(candidate.heuristic_rank()),
                            Notes(candidate, legacy_stock, ";"),
                            candidate.error_message()});
  }
  return out;
}

class ExplainCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(
        root, "explain", "every candidate of one problem, and why the winner won", app::Rows::kYes);
    problem_.RegisterOne(*app);
    constraints_.Register(*app);
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    ASSIGN_OR_RETURN(const auto problem, problem_.ReadOne());
    ASSIGN_OR_RETURN(auto constraints, constraints_.ToProto());
    ASSIGN_OR_RETURN(const auto client, context.Connect());

    v1::GetTuningRequest get;
    get.set_environment(context.settings().environment);
    get.mutable_problem()->set_text(problem.ToText());
    ASSIGN_OR_RETURN(const auto tuning, client->GetTuning(get));
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
    if (context.format() == app::Format::kCsv) {
      out << CandidateCsv(tuning);
    } else if (context.format() == app::Format::kJson) {
      out << output::JsonObject()
                 .Add("tuning", tuning)
                 .Add("result", result)
                 .Add("why", words)
                 .Take()
          << "\n";
    } else {
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
        out << "banned: " << count << (count == 1 ? " candidate" : " candidates") << " by " << ban
            << "\n";
      }
      out << "\n"
          << CandidateTable(tuning, result.answer().winner().text())
                 .Render(context.table_width(), context.out_color())
          << "\n"
          << absl::StrJoin(words, "\n") << "\n";
    }
  }

  input::ProblemArgs problem_;
  input::ConstraintArgs constraints_;
};

}  // namespace

std::unique_ptr<app::Command> NewExplainCommand() { return std::make_unique<ExplainCommand>(); }

}  // namespace convtune::cli::commands::explain
