#include "client/cli/commands/upgrade/upgrade_changes.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/fields.h"
#include "client/cli/output/units.h"
#include "client/report/report.h"
#include "proto/base/clock.h"
#include "proto/base/default_paths.h"
#include "proto/model/enums.h"
#include "proto/model/tuning/ban.h"

namespace convtune::cli::commands::upgrade {
namespace {

// Notes that are newer than our enumerations are numbers: "numerical_note_14".
std::set<std::string> NotesOf(const v1::Candidate& candidate) {
  std::set<std::string> notes;
  const auto add = [&notes](const std::string& word, const char* kind, int note) {
    notes.insert(word.empty() ? absl::StrCat(kind, "_note_", note) : word);
  };
  for (const int note : candidate.numerical_notes()) {
    add(EnumWord(*v1::NumericalNote_descriptor(), note), "numerical", note);
  }
  for (const int note : candidate.behavior_notes()) {
    add(EnumWord(*v1::BehaviorNote_descriptor(), note), "behavior", note);
  }
  return notes;
}

std::set<std::string> TextsOf(const v1::Tuning& tuning) {
  std::set<std::string> texts;
  for (const v1::Candidate& candidate : tuning.candidates()) texts.insert(candidate.text());
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
std::string ModeOf(const v1::Candidate& candidate) {
  if (candidate.mode_a_place() > 0) return "A";
  if (candidate.mode_b_place() > 0) return "B";
  return candidate.fallback_place() > 0 ? "FALLBACK" : "";
}

FirstChoiceChange CompareChoices(const v1::Candidate* from, const v1::Candidate* to) {
  if (from == nullptr && to == nullptr) return FirstChoiceChange::kNone;
  if (from == nullptr) return FirstChoiceChange::kGained;
  if (to == nullptr) return FirstChoiceChange::kLost;
  if (from->text() == to->text()) return FirstChoiceChange::kSame;
  return from->engine_config().engine_index() == to->engine_config().engine_index()
             ? FirstChoiceChange::kKnobs
             : FirstChoiceChange::kEngine;
}

// Without the "graph:" that stands before each of them.
std::string ShortChoice(const std::string& text) {
  return text.empty() ? "-" : text.substr(text.find(':') + 1);
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

std::string Word(FirstChoiceChange change) {
  constexpr const char* kWords[] = {"same", "knobs", "engine", "gained", "lost", "none", "unknown"};
  return kWords[static_cast<size_t>(change)];
}

std::string ChangeWord(const UpgradeChange& change) {
  std::string word = Word(change.choice);
  if (change.last_resort) absl::StrAppend(&word, ", last resort");
  if (change.has_erratum()) absl::StrAppend(&word, ", known to be wrong");
  if (change.winner_lost) absl::StrAppend(&word, ", winner lost");
  return word;
}

output::Color ChangeColor(const UpgradeChange& change) {
  if (change.lost() || change.last_resort || change.has_erratum()) return output::Color::kRed;
  return change.any() ? output::Color::kYellow : output::Color::kNone;
}

// The number of changes for which `holds` is true.
template <typename Holds>
int64_t Count(const ProfileChanges& profile, Holds holds) {
  return std::ranges::count(profile.changes, true, holds);
}

std::string SummaryWords(const ProfileChanges& profile) {
  const auto count = [&profile](auto holds) { return Count(profile, holds); };
  const auto problems = static_cast<int64_t>(profile.changes.size());
  const int64_t choice = count(&UpgradeChange::choice_changed);
  const int64_t engine = count(&UpgradeChange::engine_changed);
  const auto share = [problems](int64_t part) {
    return output::FormatShare(static_cast<double>(part) / static_cast<double>(problems));
  };
  std::string words = absl::StrCat(profile.profile, ", cuDNN ", profile.from, " > ", profile.to,
                                   ": ", output::Counted(problems, "problem"),
                                   "; the first choice changes for ", choice, " (", share(choice),
                                   "), to another engine for ", engine, " (", share(engine), ")");
  if (const int64_t last = count(&UpgradeChange::last_resort); last > 0) {
    absl::StrAppend(&words, ", to an engine of last resort for ", last);
  }
  if (const int64_t errata = count(&UpgradeChange::has_erratum); errata > 0) {
    absl::StrAppend(&words, ", to an engine that is known to be wrong for ", errata);
  }
  const int64_t grew = count(&UpgradeChange::grew);
  absl::StrAppend(&words, "; workspace grows for ", grew);
  if (grew > 0) {
    const UpgradeChange& most = *profile.MostGrowth();
    absl::StrAppend(
        &words, " (most: ", output::FormatBytesChange(most.from_workspace, most.to_workspace), ")");
  }
  absl::StrAppend(&words, ", shrinks for ", count(&UpgradeChange::shrank), "; notes change for ",
                  count(&UpgradeChange::notes_changed));
  if (const int64_t winners = count(&UpgradeChange::has_winner); winners > 0) {
    absl::StrAppend(&words, "; of ", output::Counted(winners, "stored winner"), " ",
                    count(&UpgradeChange::winner_lost), " cannot be built any more");
  }
  if (const int64_t lost = count(&UpgradeChange::choice_lost); lost > 0) {
    absl::StrAppend(&words, "; ", output::Counted(lost, "problem has", "problems have"),
                    " no choice any more");
  }
  const int64_t unknown = count(&UpgradeChange::unknown);
  if (unknown > 0) absl::StrAppend(&words, "; ", unknown, " not known");
  return words;
}

output::Json SummaryJson(const ProfileChanges& profile) {
  const auto count = [&profile](auto holds) { return Count(profile, holds); };
  const UpgradeChange* const most = profile.MostGrowth();
  const bool grew = most != nullptr && most->grew();
  return output::JsonRow({{"problems", profile.changes.size()},
                          {"choice", count(&UpgradeChange::choice_changed)},
                          {"engine", count(&UpgradeChange::engine_changed)},
                          {"lastResort", count(&UpgradeChange::last_resort)},
                          {"errata", count(&UpgradeChange::has_erratum)},
                          {"workspaceGrew", count(&UpgradeChange::grew)},
                          {"workspaceShrank", count(&UpgradeChange::shrank)},
                          {"notes", count(&UpgradeChange::notes_changed)},
                          {"winners", count(&UpgradeChange::has_winner)},
                          {"winnersLost", count(&UpgradeChange::winner_lost)},
                          {"choicesLost", count(&UpgradeChange::choice_lost)},
                          {"lost", count(&UpgradeChange::lost)},
                          {"unknown", count(&UpgradeChange::unknown)},
                          {"mostGrowthFromBytes", grew ? most->from_workspace : 0},
                          {"mostGrowthToBytes", grew ? most->to_workspace : 0}});
}

output::Fields UpgradeFields(const ProfileChanges& profile, const UpgradeChange& change,
                             bool several_profiles) {
  using output::Only, output::Value;
  const auto number_of = [](const std::vector<std::string>& candidates) {
    Value value = candidates;
    value.written = absl::StrCat(candidates.size());
    return value.Right();
  };
  const output::Color grew =
      change.workspace_grew() ? output::Color::kYellow : output::Color::kNone;
  return {{"problem", "PROBLEM", input::ProblemValue(change.problem)},
          {"count", "", change.count},
          {"profile", several_profiles ? "PROFILE" : "", profile.profile, Only::kCsv},
          {"from_cudnn", "", profile.from, Only::kCsv},
          {"to_cudnn", "", profile.to, Only::kCsv},
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

output::Json ProfilesJson(const std::vector<ProfileChanges>& profiles) {
  std::vector<output::Json> documents;
  for (const ProfileChanges& profile : profiles) {
    const auto fields_of = [&profile](const UpgradeChange& change) {
      return UpgradeFields(profile, change, false);
    };
    documents.push_back(
        output::JsonRow({{"profile", profile.profile},
                         {"from", profile.from},
                         {"to", profile.to},
                         {"summary", SummaryJson(profile)},
                         {"problems", output::JsonRows(profile.changes, fields_of)}}));
  }
  return output::JsonArray(documents);
}

}  // namespace

const v1::Candidate* ListedProblem::First() const {
  const auto first = std::ranges::find(tuning.candidates(), v1::CANDIDATE_STATUS_FINALIZED,
                                       &v1::Candidate::status);
  return first == tuning.candidates().end() ? nullptr : &*first;
}

UpgradeChange CompareListings(const AskedProblem& asked, const ListedProblem& from,
                              const ListedProblem& to, const std::string& environment) {
  UpgradeChange change;
  change.problem = asked.problem.ToText();
  change.count = asked.count;
  change.winner = asked.winner;
  const v1::Candidate* const before = from.First();
  const v1::Candidate* const after = to.First();
  if (!from.error.empty() || !to.error.empty()) {
    change.choice = FirstChoiceChange::kUnknown;
    change.reason = !from.error.empty() ? from.error : to.error;
  } else {
    change.choice = CompareChoices(before, after);
    change.reason = !to.refusal.empty() ? to.refusal : from.refusal;
  }
  if (before != nullptr) {
    change.from = before->text();
    change.from_mode = ModeOf(*before);
    change.from_workspace = before->workspace_bytes();
  }
  if (after != nullptr) {
    change.to = after->text();
    change.to_mode = ModeOf(*after);
    change.to_workspace = after->workspace_bytes();
    const Bans::Shared ban =
        Bans()
            .With(ShippedBans())
            .Find(ParseCandidateId(after->text()).value(), {change.problem, environment});
    if (ban != nullptr) change.erratum = ban->NameAndReason();
  }
  if (before != nullptr && after != nullptr) {
    change.last_resort = change.from_mode != "FALLBACK" && change.to_mode == "FALLBACK";
    const std::set<std::string> old_notes = NotesOf(*before), new_notes = NotesOf(*after);
    change.notes_added = Without(new_notes, old_notes);
    change.notes_removed = Without(old_notes, new_notes);
  }
  if (change.choice == FirstChoiceChange::kUnknown) return change;
  const std::set<std::string> old_texts = TextsOf(from.tuning), new_texts = TextsOf(to.tuning);
  change.came = Without(new_texts, old_texts);
  change.went = Without(old_texts, new_texts);
  change.winner_lost =
      !asked.winner.empty() && to.winner_builds == false && from.winner_builds != false;
  return change;
}

const UpgradeChange* ProfileChanges::MostGrowth() const {
  const auto most = std::ranges::max_element(changes, {}, &UpgradeChange::growth);
  return most == changes.end() ? nullptr : &*most;
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> FindProfiles(
    const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, std::string>> found;
  for (const std::string& name : names) {
    const absl::StatusOr<std::string> file = FindProfile(name);
    if (!file.ok()) return absl::InvalidArgumentError(file.status().message());
    found.emplace_back(std::filesystem::path(*file).stem().string(), *file);
  }
  return found;
}

output::Fields ColumnsOfUpgrade() { return UpgradeFields({}, {}, /*several_profiles=*/true); }

void PrintUpgrade(app::Context& context, const std::vector<ProfileChanges>& profiles, bool all) {
  context.PrintJson({{"profiles", ProfilesJson(profiles)}});
  // Numbers of a profile and a change.
  std::vector<std::pair<size_t, size_t>> rows;
  const bool table = context.format() == app::Format::kTable;
  for (size_t p = 0; p < profiles.size(); ++p) {
    for (size_t i = 0; i < profiles[p].changes.size(); ++i) {
      if (!table || all || profiles[p].changes[i].any()) rows.emplace_back(p, i);
    }
  }
  if (table) std::ranges::stable_sort(rows, {}, &std::pair<size_t, size_t>::second);
  context.PrintRows(rows, [&](const std::pair<size_t, size_t>& row) {
    return UpgradeFields(profiles[row.first], profiles[row.first].changes[row.second],
                         /*several_profiles=*/profiles.size() > 1);
  });
  for (const ProfileChanges& profile : profiles) context.Say(SummaryWords(profile));
  context.Say(
      "nothing was timed: whether a changed choice is slower takes a GPU with the new version");
}

std::string UpgradeHtml(const std::vector<ProfileChanges>& profiles) {
  convtune::report::ReportData data;
  for (const ProfileChanges& profile : profiles) {
    for (const UpgradeChange& change : profile.changes) data.AddProblem(change.problem);
  }
  data.SetUpgradeChecks(ProfilesJson(profiles).text);
  convtune::report::ReportOptions options;
  options.now = SystemClock().Now();
  const convtune::report::Report report = convtune::report::MakeReport(options, &data);
  return convtune::report::ReportHtml(data, report);
}

std::string TuneList(const std::vector<ProfileChanges>& profiles) {
  std::string list = output::CsvLine({"problem", "count"});
  for (size_t i = 0; i < profiles[0].changes.size(); ++i) {
    const UpgradeChange& first = profiles[0].changes[i];
    const bool again = std::ranges::any_of(profiles, [i](const ProfileChanges& profile) {
      return profile.changes[i].choice_changed() || profile.changes[i].lost();
    });
    if (again) list += output::CsvLine({first.problem, absl::StrCat(first.count)});
  }
  return list;
}

}  // namespace convtune::cli::commands::upgrade
