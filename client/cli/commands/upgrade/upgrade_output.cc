#include "client/cli/commands/upgrade/upgrade_output.h"

#include <algorithm>
#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/json.h"
#include "client/cli/output/table.h"
#include "client/cli/output/units.h"
#include "client/report/report_document.h"

namespace convtune::cli::commands::upgrade {
namespace {

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
  if (change.winner_lost) absl::StrAppend(&word, ", winner lost");
  return word;
}

output::Color ChangeColor(const UpgradeChange& change) {
  if (change.lost() || change.last_resort) return output::Color::kRed;
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

std::string ToJson(const UpgradeSummary& summary) {
  return output::JsonObject()
      .Add("problems", summary.problems)
      .Add("choice", summary.choice)
      .Add("engine", summary.engine)
      .Add("lastResort", summary.last_resort)
      .Add("workspaceGrew", summary.workspace_grew)
      .Add("workspaceShrank", summary.workspace_shrank)
      .Add("notes", summary.notes)
      .Add("winners", summary.winners)
      .Add("winnersLost", summary.winners_lost)
      .Add("choicesLost", summary.choices_lost)
      .Add("lost", summary.lost)
      .Add("unknown", summary.unknown)
      .Add("mostGrowthFromBytes", summary.most_growth_from)
      .Add("mostGrowthToBytes", summary.most_growth_to)
      .Take();
}

std::string ToJson(const AskedProblem& asked, const UpgradeChange& change) {
  return output::JsonObject()
      .Add("problem", asked.problem.ToText())
      .Add("count", asked.count)
      .Add("change", Word(change.choice))
      .Add("from", change.from)
      .Add("to", change.to)
      .Add("fromMode", change.from_mode)
      .Add("toMode", change.to_mode)
      .Add("lastResort", change.last_resort)
      .Add("fromWorkspaceBytes", change.from_workspace)
      .Add("toWorkspaceBytes", change.to_workspace)
      .Add("notesAdded", change.notes_added)
      .Add("notesRemoved", change.notes_removed)
      .Add("came", change.came)
      .Add("went", change.went)
      .Add("winner", change.winner)
      .Add("winnerLost", change.winner_lost)
      .Add("reason", change.reason)
      .Take();
}

void PrintJson(std::ostream& out, const std::vector<AskedProblem>& problems,
               const std::vector<ProfileChanges>& profiles) {
  std::vector<std::string> elements;
  for (const ProfileChanges& profile : profiles) {
    std::vector<std::string> rows;
    for (size_t i = 0; i < problems.size(); ++i) {
      rows.push_back(ToJson(problems[i], profile.changes[i]));
    }
    elements.push_back(output::JsonObject()
                           .Add("profile", profile.profile)
                           .Add("from", profile.from.cudnn.ToText())
                           .Add("to", profile.to.cudnn.ToText())
                           .AddRaw("summary", ToJson(UpgradeSummary::Of(profile.changes)))
                           .AddRaw("problems", output::JsonArray(rows))
                           .Take());
  }
  out << output::JsonObject().AddRaw("profiles", output::JsonArray(elements)).Take() << "\n";
}

void PrintCsv(std::ostream& out, const std::vector<AskedProblem>& problems,
              const std::vector<ProfileChanges>& profiles) {
  out << output::CsvLine({"problem",
                          "count",
                          "profile",
                          "from_cudnn",
                          "to_cudnn",
                          "change",
                          "from",
                          "to",
                          "from_mode",
                          "to_mode",
                          "last_resort",
                          "from_workspace_bytes",
                          "to_workspace_bytes",
                          "notes_added",
                          "notes_removed",
                          "came",
                          "went",
                          "winner",
                          "winner_lost",
                          "reason"});
  for (const ProfileChanges& profile : profiles) {
    for (size_t i = 0; i < problems.size(); ++i) {
      const UpgradeChange& change = profile.changes[i];
      out << output::CsvLine({problems[i].problem.ToText(),
                              absl::StrCat(problems[i].count),
                              profile.profile,
                              profile.from.cudnn.ToText(),
                              profile.to.cudnn.ToText(),
                              Word(change.choice),
                              change.from,
                              change.to,
                              change.from_mode,
                              change.to_mode,
                              change.last_resort ? "true" : "false",
                              absl::StrCat(change.from_workspace),
                              absl::StrCat(change.to_workspace),
                              absl::StrJoin(change.notes_added, " "),
                              absl::StrJoin(change.notes_removed, " "),
                              absl::StrCat(change.came.size()),
                              absl::StrCat(change.went.size()),
                              change.winner,
                              change.winner_lost ? "true" : "false",
                              change.reason});
    }
  }
}

void PrintTable(app::Context& context, const std::vector<AskedProblem>& problems,
                const std::vector<ProfileChanges>& profiles, bool all) {
  const bool several = profiles.size() > 1;
  std::vector<output::Table::Column> columns = {{"PROBLEM"}};
  if (several) columns.push_back({"PROFILE"});
  columns.insert(columns.end(), {{"CHANGE"},
                                 {"WORKSPACE", output::Align::kRight},
                                 {"CAME", output::Align::kRight},
                                 {"WENT", output::Align::kRight},
                                 {"NOTES"},
                                 {"FROM"},
                                 {"TO"}});
  output::Table table(columns);
  for (size_t i = 0; i < problems.size(); ++i) {
    for (const ProfileChanges& profile : profiles) {
      const UpgradeChange& change = profile.changes[i];
      if (!all && !change.any()) continue;
      std::vector<output::Table::Cell> row = {input::ShortProblem(problems[i].problem.ToText())};
      if (several) row.emplace_back(profile.profile);
      row.push_back({ChangeWord(change), ChangeColor(change)});
      row.push_back({WorkspaceWords(change),
                     change.workspace_grew() ? output::Color::kYellow : output::Color::kNone});
      row.emplace_back(absl::StrCat(change.came.size()));
      row.emplace_back(absl::StrCat(change.went.size()));
      row.emplace_back(change.notes_changed() ? NotesText(change) : "-");
      row.emplace_back(ShortChoice(change.from));
      row.emplace_back(change.to.empty() && !change.reason.empty() ? change.reason
                                                                   : ShortChoice(change.to));
      table.Add(std::move(row));
    }
  }
  context.PrintTable(table);
}

}  // namespace

void PrintUpgrade(app::Context& context, const std::vector<AskedProblem>& problems,
                  const std::vector<ProfileChanges>& profiles, bool all) {
  switch (context.format()) {
    case app::Format::kJson:
      PrintJson(context.io().out, problems, profiles);
      break;
    case app::Format::kCsv:
      PrintCsv(context.io().out, problems, profiles);
      break;
    case app::Format::kTable:
      PrintTable(context, problems, profiles, all);
      break;
  }
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
                            change.last_resort});
    }
    data.AddUpgradeCheck(std::move(check));
  }
  convtune::report::ReportOptions options;
  options.now = absl::Now();
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
