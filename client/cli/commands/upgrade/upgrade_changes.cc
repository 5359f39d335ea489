#include "client/cli/commands/upgrade/upgrade_changes.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/fields.h"
#include "client/cli/output/units.h"
#include "client/report/report.h"
#include "proto/base/clock.h"
#include "proto/model/tuning/errata.h"

namespace convtune::cli::commands::upgrade {
namespace {

// Notes that are newer than our enumerations are numbers: "numerical_note_14".
std::set<std::string> NotesOf(const Candidate& candidate) {
  std::set<std::string> notes;
  for (int bit = 0; bit < 32; ++bit) {
    const auto add = [&](uint32_t mask, const std::string& name, const char* kind) {
      if ((mask >> bit & 1U) == 0) return;
      notes.insert(name == "invalid" ? absl::StrCat(kind, "_note_", bit) : name);
    };
    add(candidate.numerical_notes, std::string(Name(static_cast<NumericalNote>(bit))), "numerical");
    add(candidate.behavior_notes, std::string(Name(static_cast<BehaviorNote>(bit))), "behavior");
  }
  return notes;
}

std::set<std::string> TextsOf(const std::vector<Candidate>& candidates) {
  std::set<std::string> texts;
  for (const Candidate& candidate : candidates) texts.insert(ToText(candidate.id));
  return texts;
}

// Those of `a` that are not in `b`.
std::vector<std::string> Without(const std::set<std::string>& a, const std::set<std::string>& b) {
  std::vector<std::string> rest;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(rest));
  return rest;
}

// Lists are in the order of modes: where a first choice is mode FALLBACK's, the
// others list nothing that can be built.
std::string ModeOf(const Candidate& candidate) {
  if (candidate.places.mode_a > 0) return "A";
  if (candidate.places.mode_b > 0) return "B";
  return candidate.places.fallback > 0 ? "FALLBACK" : "";
}

FirstChoiceChange CompareChoices(const Candidate* from, const Candidate* to) {
  if (from == nullptr && to == nullptr) return FirstChoiceChange::kNone;
  if (from == nullptr) return FirstChoiceChange::kGained;
  if (to == nullptr) return FirstChoiceChange::kLost;
  if (from->id == to->id) return FirstChoiceChange::kSame;
  const auto* const before = std::get_if<EngineConfig>(&from->id);
  const auto* const after = std::get_if<EngineConfig>(&to->id);
  const bool same_engine =
      before != nullptr && after != nullptr && before->engine_index == after->engine_index;
  return same_engine ? FirstChoiceChange::kKnobs : FirstChoiceChange::kEngine;
}

// "graph:" stands before each of them.
std::string ShortChoice(const std::string& text) {
  if (text.empty()) return "-";
  return text.rfind("graph:", 0) == 0 ? text.substr(6) : text;
}

std::string WorkspaceWords(const UpgradeChange& change) {
  if (!change.from.empty() && !change.to.empty()) {
    return output::FormatBytesChange(change.from_workspace, change.to_workspace);
  }
  const std::string from = change.from.empty() ? "-" : output::FormatBytes(change.from_workspace);
  const std::string to = change.to.empty() ? "-" : output::FormatBytes(change.to_workspace);
  return from == to ? to : absl::StrCat(from, " > ", to);
}

// "+fft -tensor_core"; empty where notes are the same.
std::string NotesText(const UpgradeChange& change) {
  std::vector<std::string> words;
  for (const std::string& note : change.notes_added) words.push_back(absl::StrCat("+", note));
  for (const std::string& note : change.notes_removed) words.push_back(absl::StrCat("-", note));
  return absl::StrJoin(words, " ");
}

std::string ChangeWord(const UpgradeChange& change) {
  std::string word = Word(change.choice);
  if (change.last_resort) absl::StrAppend(&word, ", last resort");
  if (!change.erratum.empty()) absl::StrAppend(&word, ", known to be wrong");
  if (change.winner_lost) absl::StrAppend(&word, ", winner lost");
  return word;
}

output::Color ChangeColor(const UpgradeChange& change) {
  if (change.lost() || change.last_resort || !change.erratum.empty()) return output::Color::kRed;
  return change.any() ? output::Color::kYellow : output::Color::kNone;
}

std::string Share(int part, int whole) {
  return absl::StrFormat("%.1f%%", whole == 0 ? 0.0 : 100.0 * part / whole);
}

std::string SummaryWords(const ProfileChanges& profile) {
  const UpgradeSummary summary = UpgradeSummary::Of(profile.changes);
  std::string words = absl::StrCat(
      profile.profile, ", cuDNN ", profile.from.cudnn.ToText(), " > ", profile.to.cudnn.ToText(),
      ": ", summary.problems, summary.problems == 1 ? " problem" : " problems",
      "; the first choice changes for ", summary.choice, " (",
      Share(summary.choice, summary.problems), "), to another engine for ", summary.engine, " (",
      Share(summary.engine, summary.problems), ")");
  if (summary.last_resort > 0) {
    absl::StrAppend(&words, ", to an engine of last resort for ", summary.last_resort);
  }
  if (summary.errata > 0) {
    absl::StrAppend(&words, ", to an engine that is known to be wrong for ", summary.errata);
  }
  absl::StrAppend(&words, "; workspace grows for ", summary.workspace_grew);
  if (summary.workspace_grew > 0) {
    absl::StrAppend(&words, " (most: ",
                    output::FormatBytesChange(summary.most_growth_from, summary.most_growth_to),
                    ")");
  }
  absl::StrAppend(&words, ", shrinks for ", summary.workspace_shrank, "; notes change for ",
                  summary.notes);
  if (summary.winners > 0) {
    absl::StrAppend(&words, "; of ", summary.winners,
                    summary.winners == 1 ? " stored winner " : " stored winners ",
                    summary.winners_lost, " cannot be built any more");
  }
  if (summary.choices_lost > 0) {
    absl::StrAppend(&words, "; ", summary.choices_lost,
                    summary.choices_lost == 1 ? " problem has" : " problems have",
                    " no choice any more");
  }
  if (summary.unknown > 0) absl::StrAppend(&words, "; ", summary.unknown, " not known");
  return words;
}

output::Json ToJson(const UpgradeSummary& summary) {
  return output::JsonObject({{"problems", summary.problems},
                             {"choice", summary.choice},
                             {"engine", summary.engine},
                             {"lastResort", summary.last_resort},
                             {"errata", summary.errata},
                             {"workspaceGrew", summary.workspace_grew},
                             {"workspaceShrank", summary.workspace_shrank},
                             {"notes", summary.notes},
                             {"winners", summary.winners},
                             {"winnersLost", summary.winners_lost},
                             {"choicesLost", summary.choices_lost},
                             {"lost", summary.lost},
                             {"unknown", summary.unknown},
                             {"mostGrowthFromBytes", summary.most_growth_from},
                             {"mostGrowthToBytes", summary.most_growth_to}});
}

// A problem on a profile.
struct UpgradeRow {
  size_t index = 0;  // the problem's
  std::string problem;
  int64_t count = 0;
  std::string profile, from_cudnn, to_cudnn;
  UpgradeChange change;
};

std::vector<UpgradeRow> RowsOf(const std::vector<AskedProblem>& problems,
                               const ProfileChanges& profile) {
  std::vector<UpgradeRow> rows;
  for (size_t i = 0; i < problems.size(); ++i) {
    rows.push_back({i, problems[i].problem.ToText(), problems[i].count, profile.profile,
                    profile.from.cudnn.ToText(), profile.to.cudnn.ToText(), profile.changes[i]});
  }
  return rows;
}

output::Fields UpgradeFields(const UpgradeRow& row, bool several_profiles) {
  using output::Only, output::Value;
  const UpgradeChange& change = row.change;
  const auto number_of = [](const std::vector<std::string>& candidates) {
    Value value = candidates;
    value.written = absl::StrCat(candidates.size());
    return value.Right();
  };
  const output::Color grew =
      change.workspace_grew() ? output::Color::kYellow : output::Color::kNone;
  return {{"problem", "PROBLEM", input::ProblemValue(row.problem)},
          {"count", "", row.count},
          {"profile", several_profiles ? "PROFILE" : "", row.profile, Only::kCsv},
          {"from_cudnn", "", row.from_cudnn, Only::kCsv},
          {"to_cudnn", "", row.to_cudnn, Only::kCsv},
          {"change", "CHANGE",
           Value(Word(change.choice)).Shown(ChangeWord(change)).In(ChangeColor(change))},
          {"", "WORKSPACE", Value(WorkspaceWords(change)).Right().In(grew)},
          {"from", "", change.from},
          {"to", "", change.to},
          {"fromMode", "", change.from_mode},
          {"toMode", "", change.to_mode},
          {"lastResort", "", change.last_resort},
          {"fromWorkspaceBytes", "", change.from_workspace},
          {"toWorkspaceBytes", "", change.to_workspace},
          {"notesAdded", "", change.notes_added},
          {"notesRemoved", "", change.notes_removed},
          {"came", "CAME", number_of(change.came)},
          {"went", "WENT", number_of(change.went)},
          {"winner", "", change.winner},
          {"winnerLost", "", change.winner_lost},
          {"reason", "", change.reason},
          {"erratum", "", change.erratum},
          {"", "NOTES", change.notes_changed() ? NotesText(change) : "-"},
          {"", "FROM", ShortChoice(change.from)},
          {"", "TO",
           change.to.empty() && !change.reason.empty() ? change.reason : ShortChoice(change.to)}};
}

}  // namespace

std::string Word(FirstChoiceChange change) {
  constexpr const char* kWords[] = {"same", "knobs", "engine", "gained", "lost", "none", "unknown"};
  return kWords[static_cast<size_t>(change)];
}

UpgradeChange CompareListings(const AskedProblem& asked, const ListedProblem& from,
                              const ListedProblem& to, const std::string& environment) {
  UpgradeChange change;
  change.winner = asked.winner;
  const Candidate* const before = from.first ? &from.listed[*from.first] : nullptr;
  const Candidate* const after = to.first ? &to.listed[*to.first] : nullptr;
  if (!from.error.empty() || !to.error.empty()) {
    change.choice = FirstChoiceChange::kUnknown;
    change.reason = !from.error.empty() ? from.error : to.error;
  } else {
    change.choice = CompareChoices(before, after);
    change.reason = !to.refusal.empty() ? to.refusal : from.refusal;
  }
  if (before != nullptr) {
    change.from = ToText(before->id);
    change.from_mode = ModeOf(*before);
    change.from_workspace = before->workspace_bytes;
  }
  if (after != nullptr) {
    change.to = ToText(after->id);
    change.to_mode = ModeOf(*after);
    change.to_workspace = after->workspace_bytes;
    const Bans::Shared ban =
        Bans().With(ShippedBans()).Find(after->id, {asked.problem.ToText(), environment});
    if (ban != nullptr) change.erratum = ban->NameAndReason();
  }
  if (before != nullptr && after != nullptr) {
    change.last_resort = change.from_mode != "FALLBACK" && change.to_mode == "FALLBACK";
    const std::set<std::string> old_notes = NotesOf(*before), new_notes = NotesOf(*after);
    change.notes_added = Without(new_notes, old_notes);
    change.notes_removed = Without(old_notes, new_notes);
  }
  if (change.choice == FirstChoiceChange::kUnknown) return change;
  const std::set<std::string> old_texts = TextsOf(from.listed), new_texts = TextsOf(to.listed);
  change.came = Without(new_texts, old_texts);
  change.went = Without(old_texts, new_texts);
  change.winner_lost =
      !asked.winner.empty() && to.winner_builds == false && from.winner_builds != false;
  return change;
}

UpgradeSummary UpgradeSummary::Of(const std::vector<UpgradeChange>& changes) {
  UpgradeSummary summary;
  for (const UpgradeChange& change : changes) {
    ++summary.problems;
    summary.choice += change.choice_changed() ? 1 : 0;
    summary.engine += change.choice == FirstChoiceChange::kEngine ? 1 : 0;
    summary.last_resort += change.last_resort ? 1 : 0;
    summary.errata += change.erratum.empty() ? 0 : 1;
    summary.notes += change.notes_changed() ? 1 : 0;
    summary.winners += change.winner.empty() ? 0 : 1;
    summary.winners_lost += change.winner_lost ? 1 : 0;
    summary.choices_lost += change.choice == FirstChoiceChange::kLost ? 1 : 0;
    summary.lost += change.lost() ? 1 : 0;
    summary.unknown += change.choice == FirstChoiceChange::kUnknown ? 1 : 0;
    if (change.from.empty() || change.to.empty()) continue;
    const int64_t growth = change.to_workspace - change.from_workspace;
    summary.workspace_grew += growth > 0 ? 1 : 0;
    summary.workspace_shrank += growth < 0 ? 1 : 0;
    if (growth > summary.most_growth_to - summary.most_growth_from) {
      summary.most_growth_from = change.from_workspace;
      summary.most_growth_to = change.to_workspace;
    }
  }
  return summary;
}

output::Fields ColumnsOfUpgrade() { return UpgradeFields({}, /*several_profiles=*/true); }

void PrintUpgrade(app::Context& context, const std::vector<AskedProblem>& problems,
                  const std::vector<ProfileChanges>& profiles, bool all) {
  const auto fields_of = [&](const UpgradeRow& row) {
    return UpgradeFields(row, profiles.size() > 1);
  };
  std::vector<output::Json> documents;
  std::vector<UpgradeRow> rows;
  for (const ProfileChanges& profile : profiles) {
    const std::vector<UpgradeRow> own = RowsOf(problems, profile);
    documents.push_back(
        output::JsonObject({{"profile", profile.profile},
                            {"from", profile.from.cudnn.ToText()},
                            {"to", profile.to.cudnn.ToText()},
                            {"summary", ToJson(UpgradeSummary::Of(profile.changes))},
                            {"problems", output::JsonRows(own, fields_of)}}));
    rows.insert(rows.end(), own.begin(), own.end());
  }
  context.PrintJson({{"profiles", documents}});
  if (context.format() == app::Format::kTable) {
    std::erase_if(rows, [all](const UpgradeRow& row) { return !all && !row.change.any(); });
    std::stable_sort(rows.begin(), rows.end(),
                     [](const UpgradeRow& a, const UpgradeRow& b) { return a.index < b.index; });
  }
  context.PrintRows(rows, fields_of);
  for (const ProfileChanges& profile : profiles) context.Say(SummaryWords(profile));
  context.Say(
      "nothing was timed: whether a changed choice is slower takes a GPU with the new version");
}

std::string UpgradeHtml(const std::vector<AskedProblem>& problems,
                        const std::vector<ProfileChanges>& profiles) {
  convtune::report::ReportData data;
  for (const ProfileChanges& profile : profiles) {
    convtune::report::ReportUpgradeCheck check{
        profile.profile, profile.from.cudnn.ToText(), profile.to.cudnn.ToText(), {}};
    for (size_t i = 0; i < problems.size(); ++i) {
      const UpgradeChange& change = profile.changes[i];
      check.rows.push_back({data.AddProblem(problems[i].problem.ToText()), problems[i].count,
                            Word(change.choice), change.from, change.to, change.from_workspace,
                            change.to_workspace, NotesText(change), change.winner_lost,
                            change.last_resort, !change.erratum.empty()});
    }
    data.AddUpgradeCheck(std::move(check));
  }
  convtune::report::ReportOptions options;
  options.now = SystemClock().Now();
  const convtune::report::Report report = convtune::report::MakeReport(options, &data);
  return convtune::report::ReportHtml(data, report);
}

std::string TuneList(const std::vector<AskedProblem>& problems,
                     const std::vector<ProfileChanges>& profiles) {
  std::string list = output::CsvLine({"problem", "count"});
  for (size_t i = 0; i < problems.size(); ++i) {
    const bool again =
        std::any_of(profiles.begin(), profiles.end(), [i](const ProfileChanges& profile) {
          return profile.changes[i].choice_changed() || profile.changes[i].lost();
        });
    if (again) {
      list += output::CsvLine({problems[i].problem.ToText(), absl::StrCat(problems[i].count)});
    }
  }
  return list;
}

}  // namespace convtune::cli::commands::upgrade
