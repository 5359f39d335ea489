#include "client/cli/commands/explain/explain.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <numeric>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/calls/answers.h"
#include "client/cli/input/options.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/fields.h"
#include "client/cli/output/units.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/model/tuning/ban.h"
#include "proto/model/tuning/candidate.h"
#include "proto/model/tuning/conditions.h"

namespace convtune::cli::commands::explain {
namespace {

using Candidates = google::protobuf::RepeatedPtrField<v1::Candidate>;

bool Timed(const v1::Candidate& candidate) {
  return candidate.status() == v1::CANDIDATE_STATUS_TIMED && candidate.median_us() > 0;
}

bool Overlap(const v1::Candidate& a, const v1::Candidate& b) {
  return a.low_us() <= b.high_us() && b.low_us() <= a.high_us();
}

std::string TimeOf(const v1::Candidate& candidate) {
  return output::FormatMicroseconds(candidate.median_us());
}

// The first in the order of the daemon's list that is not the winner and for
// which `wanted` holds.
template <typename Wanted>
const v1::Candidate* FirstOther(const Candidates& candidates, const v1::Candidate& winner,
                                Wanted wanted) {
  for (const v1::Candidate& candidate : candidates) {
    if (candidate.text() != winner.text() && wanted(candidate)) return &candidate;
  }
  return nullptr;
}

// What sets the winner apart from one that is as fast.
std::string TieBreak(const v1::Candidate& winner, const v1::Candidate& other, bool is_stock) {
  if (IsCheaperToLaunch(winner.host_us(), other.host_us())) {
    return absl::StrCat("launching it takes the host less time (",
                        output::FormatMicroseconds(winner.host_us()), " against ",
                        output::FormatMicroseconds(other.host_us()), ")");
  }
  if (winner.workspace_bytes() < other.workspace_bytes()) {
    return absl::StrCat("it needs less workspace (", output::FormatBytes(winner.workspace_bytes()),
                        " against ", output::FormatBytes(other.workspace_bytes()), ")");
  }
  if (winner.deterministic() && !other.deterministic()) return "it is deterministic";
  if (is_stock) return "it is the stock choice";
  return "it comes first in the fixed order";
}

void ExplainTimed(const v1::Candidate& winner, const Candidates& candidates, v1::Api api,
                  std::vector<std::string>* words) {
  const v1::Candidate* stock = StockOf(candidates, api);
  const bool is_stock = stock != nullptr && stock->text() == winner.text();
  const auto faster = [&](const v1::Candidate& candidate) {
    return Timed(candidate) && candidate.median_us() < winner.median_us();
  };
  const auto slower = [&](const v1::Candidate& candidate) {
    return Timed(candidate) && candidate.median_us() >= winner.median_us();
  };
  if (const v1::Candidate* ahead = FirstOther(candidates, winner, faster); ahead != nullptr) {
    if (Overlap(winner, *ahead)) {
      words->push_back(absl::StrCat("It ties with ", ahead->text(), " (", TimeOf(*ahead),
                                    "), as the intervals of their medians overlap; ",
                                    TieBreak(winner, *ahead, is_stock), "."));
    } else {
      words->push_back(absl::StrCat(ahead->text(), " is faster (", TimeOf(*ahead),
                                    "), but is left out by the constraints, a pin or a ban."));
    }
  } else if (const v1::Candidate* next = FirstOther(candidates, winner, slower); next != nullptr) {
    const double ahead_by = 100 * (next->median_us() / winner.median_us() - 1);
    words->push_back(absl::StrFormat("It is the fastest: %s, %.1f%% ahead of %s (%s).",
                                     TimeOf(winner), ahead_by, next->text(), TimeOf(*next)));
    if (Overlap(winner, *next)) {
      words->push_back(absl::StrCat("The intervals of their medians overlap, so that is a tie; ",
                                    TieBreak(winner, *next, is_stock), "."));
    }
  } else {
    words->push_back("It is the only one that was timed.");
  }
  const char* legacy = stock != nullptr && stock->has_legacy_algorithm() ? "legacy " : "";
  if (is_stock) {
    words->push_back(absl::StrCat("It is also what cuDNN's ", legacy,
                                  "heuristic would have run (the stock choice)."));
  } else if (stock != nullptr && Timed(*stock)) {
    words->push_back(
        absl::StrFormat("cuDNN's %sheuristic would have run %s (%s): %.2f times the time.", legacy,
                        stock->text(), TimeOf(*stock), stock->median_us() / winner.median_us()));
  }
}

void ExplainHeuristic(const v1::Candidate& winner, const Candidates& candidates,
                      std::vector<std::string>* words) {
  words->push_back("Nothing was timed: this is cuDNN's heuristic, not a measurement.");
  if (winner.heuristic_rank() < 0) return;
  const auto skipped =
      std::count_if(candidates.begin(), candidates.end(), [&](const v1::Candidate& candidate) {
        return candidate.has_legacy_algorithm() == winner.has_legacy_algorithm() &&
               ListPlace(candidate.heuristic_rank()) < winner.heuristic_rank() &&
               candidate.status() != v1::CANDIDATE_STATUS_FINALIZED;
      });
  words->push_back(winner.heuristic_rank() == 0
                       ? std::string("cuDNN lists it first.")
                       : absl::StrCat("cuDNN lists it at place ", winner.heuristic_rank() + 1, "; ",
                                      skipped, " of those before it cannot run."));
}

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

// The interval of the median, "-0.5% +1.2%": how far its ends lie below and above the median.
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
    CLI::App* app =
        AddVerb(root, "explain", "every candidate of one problem, and why the winner won",
                CandidateFields(0, {}, nullptr, {}));
    problem_.RegisterOne(*app);
    input::AddConstraints(*app, ask_.mutable_constraints());
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    ASSIGN_OR_RETURN(const auto problem, problem_.ReadOne());
    auto get = context.NewRequest<v1::GetTuningRequest>();
    get.mutable_problem()->set_text(problem.ToText());
    ASSIGN_OR_RETURN(const auto tuning, context.Call<v1::Tuning>(get));
    const calls::BatchAnswers answers =
        calls::BatchGetAll(context, ask_, {{problem, 1, "PROBLEM"}});
    if (answers.rows.empty()) return answers.code;
    Print(context, tuning, answers.rows[0].result, ask_.constraints().api());
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
  v1::BatchGetRequest ask_;
};

const std::map<v1::StopReason, const char*> kWhyStopped = {
    {v1::STOP_REASON_ONE_CANDIDATE, "only one candidate could be timed"},
    {v1::STOP_REASON_SETTLED, "every finalist is known to be slower than the fastest, or as fast"},
    {v1::STOP_REASON_NOISE_SETTLED,
     "the noise is known, and more rounds would not tell the finalists apart"},
    {v1::STOP_REASON_ROUNDS, "the most rounds were run"},
    {v1::STOP_REASON_BUDGET, "the time budget ended"}};

}  // namespace

const v1::Candidate* StockOf(const Candidates& candidates, v1::Api api) {
  std::vector<Candidate> known(static_cast<size_t>(candidates.size()));
  for (size_t i = 0; i < known.size(); ++i) {
    const v1::Candidate& candidate = candidates[static_cast<int>(i)];
    if (candidate.has_legacy_algorithm()) known[i].id = LegacyAlgorithm();
    known[i].heuristic_rank = candidate.heuristic_rank();
    known[i].status = static_cast<CandidateStatus>(candidate.status());
  }
  const std::optional<size_t> stock =
      StockIndex(known, api == v1::API_UNSPECIFIED ? Api::kAny : static_cast<Api>(api));
  return stock.has_value() ? &candidates[static_cast<int>(*stock)] : nullptr;
}

std::vector<std::string> ExplainRace(const v1::Tuning& tuning) {
  std::vector<std::string> words;
  const v1::SelfCheck& self_check = tuning.conditions().self_check();
  if (!self_check.failed().empty()) {
    words.push_back("self-check: does not work on this GPU: " +
                    absl::StrJoin(self_check.failed(), ", "));
  }
  if (!tuning.conditions().unblocked().empty()) {
    words.push_back("no blocking kernels before " + tuning.conditions().unblocked());
  }
  if (tuning.conditions().retried_runs() > 0) {
    words.push_back(absl::StrCat("runs that failed and were tried once more: ",
                                 tuning.conditions().retried_runs()));
  }
  const auto why = kWhyStopped.find(tuning.stop_reason());
  if (why == kWhyStopped.end()) return words;
  words.push_back(
      absl::StrCat("race: ", output::Counted(tuning.rounds(), "round"), ", until ", why->second));
  const v1::Conditions& conditions = tuning.conditions();
  if (!conditions.known()) {
    words.push_back("GPU: not known (NVML could not be asked)");
    return words;
  }
  std::vector<std::string> facts(conditions.marks().begin(), conditions.marks().end());
  // That there was no other process is not known: in a container NVML may list none.
  if (facts.empty()) facts.push_back("no other process was seen, not throttled");
  if (conditions.temperature_celsius() > 0) {
    facts.push_back(absl::StrCat("at most ", conditions.temperature_celsius(), " C"));
  }
  if (conditions.power_limit_watts() > 0) {
    facts.push_back(absl::StrFormat("power limit %.0f W", conditions.power_limit_watts()));
  }
  if (!conditions.clock_reasons().empty()) {
    uint32_t reasons = 0;
    for (const int reason : conditions.clock_reasons()) reasons |= static_cast<uint32_t>(reason);
    facts.push_back("clocks held by " + absl::StrJoin(ClockReasonNames(reasons), ", "));
  }
  if (conditions.mig()) facts.push_back("MIG");
  if (conditions.compute_mode() > v1::COMPUTE_MODE_DEFAULT) {
    facts.push_back(
        Concat("compute mode ", Name(static_cast<ComputeMode>(conditions.compute_mode()))));
  }
  words.push_back("GPU: " + absl::StrJoin(facts, "; "));
  return words;
}

std::vector<std::string> ExplainWinner(const v1::Answer& answer, const Candidates& candidates,
                                       v1::Api api) {
  const v1::Candidate& winner = answer.winner();
  std::vector<std::string> words = {absl::StrCat("The winner is ", winner.text(), ".")};
  if (answer.pinned()) {
    words.push_back(absl::StrCat("It is pinned: ", answer.pin_reason()));
  }
  if (Timed(winner)) {
    if (!answer.pinned()) ExplainTimed(winner, candidates, api, &words);
  } else {
    ExplainHeuristic(winner, candidates, &words);
  }
  if (answer.eligible_count() < answer.candidate_count()) {
    words.push_back(absl::StrCat(answer.eligible_count(), " of ", answer.candidate_count(),
                                 " candidates run, keep to the constraints, and are not banned."));
  }
  if (!answer.note().empty()) words.push_back(absl::StrCat("Note: ", answer.note()));
  return words;
}

std::unique_ptr<app::Command> NewExplainCommand() { return std::make_unique<ExplainCommand>(); }

}  // namespace convtune::cli::commands::explain
