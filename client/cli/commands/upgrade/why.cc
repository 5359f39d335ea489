#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/commands/lint/lint.h"
#include "client/cli/commands/upgrade/cudnn_cache.h"
#include "client/cli/commands/upgrade/upgrade_changes.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/progress.h"
#include "client/cli/output/units.h"
#include "proto/base/default_paths.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::commands::upgrade {
namespace {

using lint::LintSeverity;

// What one cuDNN offers a model on one profile. Counts are of distinct convolutions.
struct WhyRow {
  std::string profile;
  std::string cudnn;
  int64_t problems = 0;
  int64_t unknown = 0;         // a worker died of them
  int64_t without_choice = 0;  // cuDNN offers nothing that can be built
  int64_t modes_differ = 0;    // the lists of modes A and B begin with different candidates
  double modes_share = 0;      // their part of the arithmetic, from 0 to 1
  // What PyTorch's benchmark mode builds: the candidates of modes A and FALLBACK that can be.
  int64_t plans = 0;
  int64_t most_workspace = 0;   // of the first choices, in bytes
  int64_t least_workspace = 0;  // the most where each runs its candidate with the least
  int64_t last_resort = 0;      // the first choice is mode FALLBACK's
  int64_t known_wrong = 0;      // the first choice fits a ban that comes with convtune
  std::map<LintSeverity, int64_t> findings;
  // The first choice is another one than with the cuDNN of the first row; absent in that row.
  std::optional<int64_t> changed;
  std::vector<std::string> first_choices;  // in the problems' order; empty: none
};

output::Fields WhyFields(const WhyRow& row) {
  using output::Color, output::Value;
  const auto bad = [](int64_t count) {
    return Value(count).In(count > 0 ? Color::kRed : Color::kNone);
  };
  const auto found = [&row](LintSeverity severity) {
    const auto it = row.findings.find(severity);
    return it == row.findings.end() ? 0 : it->second;
  };
  const Value changed = row.changed ? Value(*row.changed) : Value(std::optional<double>());
  return {
      {"profile", "PROFILE", row.profile},
      {"cudnn", "CUDNN", row.cudnn},
      {"problems", "CONVOLUTIONS", row.problems},
      {"unknown", "UNKNOWN", bad(row.unknown)},
      {"withoutChoice", "NO CHOICE", bad(row.without_choice)},
      {"modesDiffer", "A AND B DIFFER",
       Value(row.modes_differ)
           .Shown(absl::StrCat(
               row.modes_differ,
               row.modes_differ == 0 ? "" : " (" + output::FormatShare(row.modes_share) + ")"))},
      {"modesDifferShare", "", row.modes_share},
      {"plans", "PLANS", row.plans},
      {"mostWorkspaceBytes", "WORKSPACE", output::Bytes(row.most_workspace)},
      {"leastWorkspaceBytes", "LEAST", output::Bytes(row.least_workspace)},
      {"lastResort", "LAST RESORT", bad(row.last_resort)},
      {"knownWrong", "KNOWN WRONG", bad(row.known_wrong)},
      {"errors", "ERRORS", bad(found(LintSeverity::kError))},
      {"warnings", "WARNINGS", found(LintSeverity::kWarning)},
      {"notices", "NOTICES", found(LintSeverity::kNotice)},
      {"changed", "CHANGED", Value(changed).Shown(row.changed ? changed.written : "-").Right()}};
}

// The candidate that a mode lists first.
const v1::Candidate* FirstOf(const v1::Tuning& tuning, int32_t (v1::Candidate::*mode)() const) {
  const auto first = std::ranges::find(tuning.candidates(), 1, mode);
  return first == tuning.candidates().end() ? nullptr : &*first;
}

WhyRow MakeRow(const std::vector<ProblemRow>& rows, const ProfileListing& listing) {
  WhyRow row;
  row.cudnn = listing.environment.cudnn.ToText();
  row.problems = static_cast<int64_t>(rows.size());
  double whole = 0, differs = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const ListedProblem& listed = listing.problems[i];
    const double work = WorkOf(rows[i]);
    whole += work;
    const v1::Tuning& tuning = listed.tuning;
    if (FirstOf(tuning, &v1::Candidate::mode_a_place) !=
        FirstOf(tuning, &v1::Candidate::mode_b_place)) {
      ++row.modes_differ;
      differs += work;
    }
    // Compared with itself: only what it says of the first choice is used.
    const UpgradeChange own = CompareListings({rows[i].problem, rows[i].count, ""}, listed, listed,
                                              listing.environment.ToText());
    row.first_choices.push_back(own.to);
    row.unknown += listed.error.empty() ? 0 : 1;
    row.without_choice += own.to.empty() && listed.error.empty() ? 1 : 0;
    row.last_resort += own.to_mode == "FALLBACK" ? 1 : 0;
    row.known_wrong += own.has_erratum() ? 1 : 0;
    row.most_workspace = std::max(row.most_workspace, own.to_workspace);
    int64_t least = own.to_workspace;
    for (const v1::Candidate& candidate : tuning.candidates()) {
      if (candidate.status() != v1::CANDIDATE_STATUS_FINALIZED) continue;
      row.plans += candidate.mode_a_place() > 0 || candidate.fallback_place() > 0 ? 1 : 0;
      least = std::min(least, candidate.workspace_bytes());
    }
    row.least_workspace = std::max(row.least_workspace, least);
  }
  row.modes_share = whole > 0 ? differs / whole : 0;
  return row;
}

class WhyCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "why",
                            "whether convtune has something to win for a model: where cuDNN's own "
                            "choices disagree, without a GPU and without a daemon",
                            WhyFields({}));
    problems_.RegisterFiles(*app)->required();
    app->add_option("--profile", profiles_,
                    "GPUs: profiles' names or files, with commas between (default: all profiles)")
        ->type_name("PROFILE")
        ->delimiter(',')
        ->allow_extra_args(false);
    app->add_option("--to", to_,
                    "other cuDNNs to ask too, with commas between: a version, a package such as "
                    "torch==2.15, or a folder, also a venv's")
        ->type_name("CUDNN")
        ->delimiter(',')
        ->allow_extra_args(false);
    app->add_option("--cache", cache_,
                    "folder that keeps versions of PyPI (default: ~/.cache/convtune/cudnn)")
        ->type_name("FOLDER");
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    ASSIGN_OR_RETURN(const input::ProblemBatch batch, problems_.Read(context));
    const std::vector<ProblemRow> rows = MostWorkFirst(batch.rows);
    if (rows.empty()) return app::Worse(batch.code, app::ExitCode::kUsage);
    if (profiles_.empty()) {
      ASSIGN_OR_RETURN(const std::set<std::string> all, ProfileNames());
      profiles_.assign(all.begin(), all.end());
    }
    ASSIGN_OR_RETURN(const auto profiles, FindProfiles(profiles_));
    CudnnCache cache({cache_, "", DefaultWorkerPath(),
                      [&context](const std::string& words) { context.Say(words); }});
    std::vector<CudnnToLoad> cudnns(1);  // the worker's own
    for (const std::string& name : to_) {
      ASSIGN_OR_RETURN(cudnns.emplace_back(), cache.Find("--to", name));
    }
    std::vector<WhyRow> table;
    {
      output::ProgressBar bar(context.io());
      for (const auto& [name, file] : profiles) {
        for (size_t k = 0; k < cudnns.size(); ++k) {
          bar.Show({.done = static_cast<int>(table.size()),
                    .total = static_cast<int>(profiles.size() * cudnns.size()),
                    .current = name});
          ASSIGN_OR_RETURN(WhyRow row, Look(context, rows, cudnns[k], file));
          row.profile = name;
          if (k > 0) row.changed = Differing(table[table.size() - k], row);
          table.push_back(std::move(row));
        }
      }
    }
    context.PrintJson({{"rows", output::JsonRows(table, WhyFields)}});
    context.PrintRows(table, WhyFields);
    Conclude(context, rows, table);
    const bool none = std::any_of(table.begin(), table.end(), [](const WhyRow& row) {
      return row.without_choice + row.unknown > 0;
    });
    return app::Worse(batch.code, none ? app::ExitCode::kFailed : app::ExitCode::kDone);
  }

 private:
  // Asks for the problems, then for the other forms of them that lint compares with.
  static absl::StatusOr<WhyRow> Look(app::Context& context, const std::vector<ProblemRow>& rows,
                                     const CudnnToLoad& cudnn, const std::string& profile_file) {
    lint::LintInput input;
    const auto list = [&](const std::vector<ProblemRow>& wanted) -> absl::StatusOr<ProfileListing> {
      std::vector<AskedProblem> asked;
      for (const ProblemRow& row : wanted) asked.push_back({row.problem, row.count, ""});
      ASSIGN_OR_RETURN(ProfileListing listing,
                       ListOnProfile(DefaultWorkerPath(), cudnn, profile_file, asked, Build::kAll));
      for (size_t i = 0; i < wanted.size(); ++i) {
        const ListedProblem& listed = listing.problems[i];
        const std::string text = wanted[i].problem.ToText();
        if (!listed.error.empty()) context.SayError(text, ": ", listed.error);
        if (listed.tuning.candidates().empty()) {
          input.failures[text] = listed.error.empty() ? listed.refusal : listed.error;
        } else {
          input.known[text] = listed.tuning;
        }
      }
      return listing;
    };
    ASSIGN_OR_RETURN(const ProfileListing listing, list(rows));
    for (int round = 0; round < 2; ++round) {
      const std::vector<ProblemRow> more = lint::ProblemsToList(rows, input);
      if (!more.empty()) RETURN_IF_ERROR(list(more).status());
    }
    WhyRow row = MakeRow(rows, listing);
    for (const auto& finding : lint::FindingsOf(rows, input)) {
      ++row.findings[finding.severity];
    }
    return row;
  }

  static int64_t Differing(const WhyRow& a, const WhyRow& b) {
    return std::inner_product(a.first_choices.begin(), a.first_choices.end(),
                              b.first_choices.begin(), int64_t{0}, std::plus<>(),
                              std::not_equal_to<>());
  }

  // Says for how many convolutions all profiles agree, and what takes a GPU to know.
  static void Conclude(app::Context& context, const std::vector<ProblemRow>& rows,
                       const std::vector<WhyRow>& table) {
    std::vector<const WhyRow*> own;  // with the worker's cuDNN
    for (const WhyRow& row : table) {
      if (!row.changed) own.push_back(&row);
    }
    if (own.size() > 1) {
      int64_t same = 0;
      for (size_t i = 0; i < rows.size(); ++i) {
        same += std::all_of(own.begin(), own.end(), [&](const WhyRow* row) {
          return !row->first_choices[i].empty() &&
                 row->first_choices[i] == own[0]->first_choices[i];
        });
      }
      context.Say(output::Counted(static_cast<int64_t>(rows.size()), "convolution"),
                  ": the first choice is the same on all ", own.size(), " profiles for ", same);
    }
    context.Say(
        "PLANS is what a process in benchmark mode builds and times. `convtune lint` names the "
        "findings, `convtune upgrade-check` the changes. Nothing was timed: how much faster "
        "another candidate is, and which share of the model's time convolutions are, takes a GPU");
  }

  input::ProblemArgs problems_;
  std::vector<std::string> profiles_, to_;
  std::string cache_;
};

}  // namespace

std::unique_ptr<app::Command> NewWhyCommand() { return std::make_unique<WhyCommand>(); }

}  // namespace convtune::cli::commands::upgrade
