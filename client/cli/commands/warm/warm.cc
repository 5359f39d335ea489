#include "client/cli/commands/warm/warm.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/calls/candidate_list.h"
#include "client/cli/calls/tuning_run.h"
#include "client/cli/input/options.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/units.h"
#include "convtune/v1/release_service.pb.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/convert/problem_list.h"
#include "proto/convert/record_codec.h"
#include "proto/model/tuning/warm_summary.h"

namespace convtune::cli::commands::warm {
namespace {

// The candidate that a mode lists first of those that can be built; nullptr if
// it lists none.
const v1::Candidate* FirstOf(const calls::CandidateList& list,
                             int32_t (v1::Candidate::*place)() const) {
  const v1::Candidate* first = nullptr;
  for (const v1::Candidate* candidate : list.all()) {
    const int32_t own = (candidate->*place)();
    if (own > 0 && (first == nullptr || own < (first->*place)())) first = candidate;
  }
  return first;
}

constexpr absl::Duration kReadyPoll = absl::Milliseconds(200);
// The daemon's for one problem, where none is asked for.
constexpr absl::Duration kDefaultBudget = absl::Seconds(30);
// Problems that the budget left out and that are named for people.
constexpr size_t kMostNamed = 10;

Evidence EvidenceOf(const v1::Answer& answer) { return static_cast<Evidence>(answer.evidence()); }

// Says in words why an outcome is not warm.
std::string ColdReason(const v1::BatchGetResult& result) {
  return result.has_answer()
             ? absl::StrCat("only ", output::EnumWord(result.answer().evidence()), " evidence")
             : output::EnumWord(result.miss().reason());
}

// Lines that go below the summary's.
std::string NotTunedText(const std::vector<std::string>& not_tuned) {
  std::string text;
  const size_t named = std::min(not_tuned.size(), kMostNamed);
  for (size_t i = 0; i < named; ++i) {
    absl::StrAppend(&text, "\n  not tuned: ", input::ShortProblem(not_tuned[i]));
  }
  if (named < not_tuned.size()) {
    absl::StrAppend(&text, "\n  and ", not_tuned.size() - named,
                    " more, which --json lists; a second run goes on with them");
  }
  return text;
}

// The document of --json.
output::Fields ToDocument(const WarmSummary& summary, const std::vector<std::string>& not_tuned) {
  std::vector<output::Json> rows;
  for (const auto& [reason, failure] : summary.failures) {
    rows.push_back(output::JsonRow(
        {{"reason", reason}, {"count", failure.count}, {"example", failure.example}}));
  }
  return {{"environment", summary.environment},
          {"problems", summary.problems},
          {"hits", summary.hits},
          {"tuned", summary.tuned},
          {"failed", summary.failed()},
          {"failures", rows},
          {"invalid", summary.invalid},
          {"notTuned", not_tuned},
          {"notOnDisk", summary.not_on_disk},
          {"notPublished", summary.not_published_count()},
          {"warm", summary.warm()}};
}

class WarmCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "warm", "tune what is missing of a model, most work first");
    problems_.RegisterFiles(*app)->required();
    input::AddBudget(*app, request_.mutable_options());
    input::AddTime(
        *app, "--budget-total",
        "time for all of them, such as 20m: those with the most to gain are tuned first",
        [this](absl::Duration total) { budget_total_ = total; }, absl::Seconds(1),
        absl::Hours(1000));
    app->add_option("--min-evidence", min_evidence_, "least evidence that counts as warm")
        ->check(CLI::IsMember({"heuristic", "observed", "incomplete", "measured"}));
    input::AddTime(*app, "--wait-ready", "wait for the daemon, at most this long",
                   [this](absl::Duration most) { wait_ready_ = most; });
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    BoundBudget();
    ASSIGN_OR_RETURN(const auto batch, problems_.Read(context));
    const std::vector<ProblemRow> all = MostWorkFirst(batch.rows);
    if (all.empty()) return batch.code;  // nothing is wanted, or all rows are wrong
    RETURN_IF_ERROR(WaitReady(context));

    const calls::BatchAnswers before = calls::BatchGetAll(context, {}, all);
    if (before.rows.size() + before.errors.size() < all.size()) {
      return app::Worse(batch.code, before.code);
    }
    WarmSummary summary;
    summary.environment = before.environment.name();
    Results results;
    for (const calls::AnswerRow& row : before.rows) results[row.result.problem_text()] = row.result;
    std::vector<ProblemRow> rows =
        MostWorkFirst(TakeOutForeign(batch.rows, before.environment, &summary));
    // A problem that the daemon refuses is like one that cannot be read.
    const size_t refused = std::erase_if(
        rows, [&](const ProblemRow& row) { return !results.contains(row.problem.ToText()); });
    summary.invalid = static_cast<int64_t>(batch.errors.size() + refused);
    const app::ExitCode read_code =
        refused > 0 ? app::Worse(batch.code, app::ExitCode::kUsage) : batch.code;
    std::vector<ProblemRow> missing = rows;
    std::erase_if(missing, [&](const ProblemRow& row) {
      return Warm(before.environment, results.at(row.problem.ToText()));
    });
    summary.problems += static_cast<int64_t>(rows.size());
    summary.hits = static_cast<int64_t>(rows.size() - missing.size());
    std::vector<std::string> not_tuned;  // that the end of the total budget left out
    calls::TuningRun run;
    if (!missing.empty()) {
      const calls::TuningRunLimits limits{.end = SteadyTime::Now() + budget_total_};
      const bool limited = limits.end < SteadyTime::InfiniteFuture();
      context.Say(summary.hits, " of ", rows.size(), " problems have an answer; ", missing.size(),
                  " are tuned, ", limited ? "most expected gain first" : "most work first");
      if (limited) run = OrderByGain(context, before.environment, &missing);
      if (!run.cancelled) run = calls::RunTuning(context, request_, missing, limits);
      if (run.code == app::ExitCode::kUnreachable) return run.code;
      const calls::BatchAnswers after = calls::BatchGetAll(context, {}, missing);
      for (const calls::AnswerRow& row : after.rows) {
        if (row.result.has_answer()) results[row.result.problem_text()] = row.result;
      }
      not_tuned = Count(after, run, &summary);
    }
    CountUnkept(context, rows, results, &summary);
    context.PrintJson(ToDocument(summary, not_tuned));
    context.Say(summary.ToText(), NotTunedText(not_tuned));
    context.Say(summary.Verdict());
    return app::Worse(app::Worse(read_code, run.code),
                      summary.warm() ? app::ExitCode::kDone : app::ExitCode::kFailed);
  }

 private:
  // What the daemon said of problems, by their text.
  using Results = std::map<std::string, v1::BatchGetResult>;

  // No problem has more time than all have.
  void BoundBudget() {
    v1::TuningOptions* const options = request_.mutable_options();
    const absl::Duration budget =
        options->has_time_budget() ? FromProto(options->time_budget()) : kDefaultBudget;
    if (budget > budget_total_) *options->mutable_time_budget() = ToProto(budget_total_);
  }

  // Nothing is measured for the order: it has a tenth of the total budget. Gives the
  // listing that was cancelled by a person, else no run.
  calls::TuningRun OrderByGain(app::Context& context, const v1::Environment& environment,
                               std::vector<ProblemRow>* missing) const {
    const std::vector<ProblemRow>& rows = *missing;
    const calls::TuningRunLimits limits{.end = SteadyTime::Now() + budget_total_ / 10,
                                        .quiet = true};
    FirstChoices choices;
    // On a profile the tuning is no more than such a list.
    if (!environment.profile()) {
      v1::CreateTuningJobRequest request;
      request.set_environment(environment.name());
      request.mutable_options()->set_list_only(true);
      calls::TuningRun listing = calls::RunTuning(context, request, rows, limits);
      if (listing.cancelled && !listing.out_of_time) {
        context.Say("cancelled while the order was made; nothing was tuned");
        return listing;
      }
      calls::TuningMap own;
      if (calls::GetTunings(context, environment.name(), rows, &own, limits.end).ok()) {
        AddModeChoices(own, &choices);
      }
    }
    const size_t others = AddOtherEnvironments(context, environment, rows, limits.end, &choices);
    const auto differ = std::count_if(rows.begin(), rows.end(), [&](const ProblemRow& row) {
      const auto known = choices.find(row.problem.ToText());
      return known != choices.end() && Disagreement(known->second) > 0;
    });
    context.Say(
        "the order is a heuristic: runs x arithmetic, more where cuDNN's first choices differ (",
        environment.profile() ? "" : "modes A and B, ", others,
        " other environments); they do for ", differ, " of ", rows.size(), " problems");
    *missing = MostGainFirst(rows, choices);
    return {};
  }

  // The number of other environments that were asked.
  static size_t AddOtherEnvironments(app::Context& context, const v1::Environment& environment,
                                     const std::vector<ProblemRow>& rows, SteadyTime end,
                                     FirstChoices* choices) {
    const auto listed =
        context.CallPages<v1::ListEnvironmentsResponse>(v1::ListEnvironmentsRequest());
    if (!listed.ok()) return 0;
    size_t asked = 0;
    for (const v1::Environment& other : listed->environments()) {
      if (other.text() == environment.text() || other.tuning_count() == 0) continue;
      if (SteadyTime::Now() >= end) break;
      calls::TuningMap tunings;
      if (!calls::GetTunings(context, other.text(), rows, &tunings, end).ok()) continue;
      AddStockChoices(tunings, choices);
      ++asked;
    }
    return asked;
  }

  absl::Status WaitReady(app::Context& context) const {
    if (!wait_ready_) return absl::OkStatus();
    ASSIGN_OR_RETURN(client::Client* const client, context.Connect());
    const SteadyTime end = SteadyTime::Now() + *wait_ready_;
    while (true) {
      const auto ready = client->IsServing("readiness");
      if (ready.ok() && *ready) return absl::OkStatus();
      if (!ready.ok() && !absl::IsUnavailable(ready.status())) return ready.status();
      if (SteadyTime::Now() >= end) {
        return absl::UnavailableError(
            absl::StrCat("not ready within ", absl::FormatDuration(*wait_ready_),
                         ready.ok() ? "" : ": " + std::string(ready.status().message())));
      }
      client->Pause(std::min(kReadyPoll, end - SteadyTime::Now()));
    }
  }

  bool Warm(const v1::Environment& environment, const v1::BatchGetResult& result) const {
    const Evidence least =
        ParseEvidence(min_evidence_).value_or(LeastTunedEvidence(environment.profile()));
    return result.has_answer() &&
           (result.answer().pinned() || EvidenceOf(result.answer()) >= least);
  }

  // Returns the rows that are for the environment `here`, or for any. Those that `convtune wanted`
  // listed for another one, such as one with another version of cuDNN, are added to the summary as
  // failures.
  static std::vector<ProblemRow> TakeOutForeign(const std::vector<ProblemRow>& rows,
                                                const v1::Environment& here, WarmSummary* summary) {
    std::vector<ProblemRow> kept;
    std::map<std::string, std::vector<ProblemRow>> foreign;
    for (const ProblemRow& row : rows) {
      const bool is_here = row.environment.empty() || row.environment == here.text();
      (is_here ? kept : foreign[row.environment]).push_back(row);
    }
    for (const auto& [environment, theirs] : foreign) {
      const std::vector<ProblemRow> problems = MostWorkFirst(theirs);
      summary->problems += static_cast<int64_t>(problems.size());
      summary->failures[absl::StrCat("wanted for ", environment, ", which this is not")] = {
          static_cast<int64_t>(problems.size()), input::ShortProblem(problems[0].problem.ToText())};
    }
    return kept;
  }

  // Counts the answers of `rows` that are not on disk, and those that are not published.
  static void CountUnkept(app::Context& context, const std::vector<ProblemRow>& rows,
                          const Results& results, WarmSummary* summary) {
    // A daemon older than this call, or one without releases, gives no answer.
    if (const auto publication = context.Call<v1::Publication>(v1::GetPublicationRequest());
        publication.ok()) {
      summary->publish_evidence = static_cast<Evidence>(publication->publish_evidence());
    }
    for (const ProblemRow& row : rows) {
      const v1::BatchGetResult& result = results.at(row.problem.ToText());
      if (!result.has_answer()) continue;
      const v1::Answer& answer = result.answer();
      summary->AddUnkept(EvidenceOf(answer), answer.pinned(), answer.persisted(),
                         answer.stands_in());
    }
  }

  // Returns those that the end of the total budget left out, in the order in which they would
  // have been tuned. They are failures too.
  std::vector<std::string> Count(const calls::BatchAnswers& after, const calls::TuningRun& run,
                                 WarmSummary* summary) const {
    std::vector<std::string> not_tuned;
    const std::map<std::string, std::string> reasons = calls::FailureReasons(run);
    for (const calls::AnswerRow& row : after.rows) {
      const std::string& problem = row.result.problem_text();
      if (Warm(after.environment, row.result)) {
        ++summary->tuned;
        continue;
      }
      const auto known = reasons.find(problem);
      std::string reason = known != reasons.end() ? known->second : ColdReason(row.result);
      if (run.out_of_time && known == reasons.end()) {
        reason = "not tuned: --budget-total ended";
        not_tuned.push_back(problem);
      }
      summary->AddFailure(reason, input::ShortProblem(problem));
    }
    return not_tuned;
  }

  input::ProblemArgs problems_;
  v1::CreateTuningJobRequest request_;
  absl::Duration budget_total_ = absl::InfiniteDuration();
  std::optional<absl::Duration> wait_ready_;
  std::string min_evidence_;
};

}  // namespace

void AddModeChoices(const calls::TuningMap& tunings, FirstChoices* choices) {
  for (const auto& [problem, tuning] : tunings) {
    const calls::CandidateList list(tuning, /*no_tf32=*/false);
    for (const auto place : {&v1::Candidate::mode_a_place, &v1::Candidate::mode_b_place}) {
      const v1::Candidate* const first = FirstOf(list, place);
      if (first != nullptr) (*choices)[problem].push_back(first->text());
    }
  }
}

void AddStockChoices(const calls::TuningMap& tunings, FirstChoices* choices) {
  for (const auto& [problem, tuning] : tunings) {
    const calls::CandidateList list(tuning, /*no_tf32=*/false);
    if (!list.empty()) (*choices)[problem].push_back(list.first().text());
  }
}

double Disagreement(const std::vector<std::string>& choices) {
  if (choices.size() < 2) return 0;
  const std::set<std::string> distinct(choices.begin(), choices.end());
  return static_cast<double>(distinct.size() - 1) / static_cast<double>(choices.size() - 1);
}

std::vector<ProblemRow> MostGainFirst(const std::vector<ProblemRow>& rows,
                                      const FirstChoices& choices) {
  std::vector<std::pair<double, const ProblemRow*>> order;
  for (const ProblemRow& row : rows) {
    const auto known = choices.find(row.problem.ToText());
    const double more = known == choices.end() ? 0 : Disagreement(known->second);
    order.emplace_back(WorkOf(row) * (1 + more), &row);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<ProblemRow> ordered;
  for (const auto& [gain, row] : order) ordered.push_back(*row);
  return ordered;
}

std::unique_ptr<app::Command> NewWarmCommand() { return std::make_unique<WarmCommand>(); }

}  // namespace convtune::cli::commands::warm
