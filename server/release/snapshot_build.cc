#include "server/release/snapshot_build.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <utility>

#include "db/snapshot/snapshot_writer.h"
#include "proto/base/status_macros.h"
#include "server/logging/log.h"

namespace convtune::release {
namespace {

using KeySet = snapshot::SnapshotWriter::KeySet;

// Adds choices of the snapshot at `path` to the writer's. A file that is not
// there, or is no snapshot of this format, has nothing.
KeySet CarryOver(const std::string& path, const KeySet* among,
                 const snapshot::SnapshotWriter::Wanted& wanted, snapshot::SnapshotWriter* writer) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const std::streamoff size = file.tellg();
  std::vector<uint64_t> bytes(static_cast<size_t>(size) / sizeof(uint64_t) + 1);
  file.seekg(0);
  if (!file.read(reinterpret_cast<char*>(bytes.data()), size)) return {};
  snapshot::SnapshotView view;
  const snapshot::SnapshotError error =
      snapshot::SnapshotView::Open(bytes.data(), static_cast<size_t>(size), &view);
  if (error != snapshot::SnapshotError::kNone) {
    log::Warn("$0: $1; nothing of it is carried over", path, snapshot::Describe(error));
    return {};
  }
  return writer->AddMissing(view, among, wanted);
}

class Builder {
 public:
  explicit Builder(const SnapshotInput& input) : input_(input) {
    for (const Pin& pin : input.pins) pins_.emplace(pin.key, &pin);
  }

  // A portfolio without choices is a decision, too: its problem has none.
  void Add(snapshot::Channel channel, Portfolio portfolio) {
    if (channel == snapshot::Channel::kStable) decided_.insert(portfolio.key);
    const auto quarantined = input_.quarantined(portfolio.key);
    const auto pin = pins_.find(portfolio.key);
    std::vector<Candidate> candidates;
    if (pin != pins_.end()) {
      pinned_done_.insert_or_assign(pin->first, true);
      if (const auto candidate = Pinned(*pin->second)) candidates.push_back(*candidate);
    }
    const bool pinned = !candidates.empty();
    const Choice* stock = nullptr;
    for (const Choice& choice : portfolio.choices) {
      if ((choice.roles & kRoleStock) != 0) stock = &choice;
      if ((choice.roles & kServedRoles) == 0 || quarantined.contains(choice.candidate.id)) continue;
      if (pinned && choice.candidate.id == candidates.front().id) continue;
      candidates.push_back(choice.candidate);
    }
    if (!candidates.empty()) {
      choices_.push_back({channel, std::move(portfolio.key), std::move(candidates),
                          portfolio.evidence, pinned, portfolio.release, NotesOf(stock)});
    }
  }

  // Pins of problems that have no choice.
  void AddPinsAlone() {
    for (const auto& [key, pin] : pins_) {
      if (pinned_done_.contains(key)) continue;
      Portfolio none;
      none.key = key;
      if (const lookup::IndexHit hit = input_.index->Find(key); hit.tuning != nullptr) {
        none.evidence = hit.tuning->tuning.evidence;
      }
      Add(snapshot::Channel::kStable, std::move(none));
    }
  }

  absl::Status Write(const std::string& path, SnapshotContents* contents) {
    const Releases::Served& served = contents->served;
    snapshot::SnapshotWriter writer({static_cast<uint64_t>(served.release),
                                     static_cast<uint64_t>(served.canary_release),
                                     static_cast<uint32_t>(served.canary_permille), input_.now});
    for (const Environment& environment : input_.current) {
      RETURN_IF_ERROR(writer.AddEnvironment(environment));
    }
    std::map<std::string, absl::StatusOr<Environment>> environments;
    for (const Entry& entry : choices_) {
      const absl::Status status = WriteEntry(entry, &environments, &writer);
      if (!status.ok()) {
        log::Warn("left out of the snapshot: $0: $1", entry.key.problem_text, status.ToString());
      }
    }
    const std::shared_ptr<const Bans> bans = input_.index->bans();
    const auto is_lost = [this, &bans](
                             const Environment& environment, const ConvProblem& problem,
                             const snapshot::SnapshotEntry& entry) -> std::optional<Bans> {
      const TuningKey key = {problem.ToText(), environment.ToText()};
      if (entry.pinned != 0 || !IsLost(key)) return std::nullopt;
      return bans->Of(key);
    };
    if (input_.releases->TakeDamage() || !input_.carry_over) {
      contents->carried = CarryOver(path, nullptr, is_lost, &writer);
    } else if (!input_.carry_over->empty()) {
      contents->carried = CarryOver(path, &*input_.carry_over, is_lost, &writer);
    }
    contents->choice_count = static_cast<int64_t>(writer.choice_count());
    return writer.Write(path);
  }

 private:
  struct Entry {
    snapshot::Channel channel;
    TuningKey key;
    std::vector<Candidate> candidates;
    Evidence evidence;
    bool pinned;
    int64_t release;
    snapshot::StockChoice stock;
  };

  // False where the database says why the problem has no choice.
  bool IsLost(const TuningKey& key) const {
    if (decided_.contains(key) || !input_.quarantined(key).empty()) return false;
    const lookup::IndexHit hit = input_.index->Find(key);
    return hit.tuning == nullptr || !hit.tuning->IsOutdated();
  }

  std::optional<Candidate> Pinned(const Pin& pin) const {
    const lookup::IndexHit hit = input_.index->Find(pin.key);
    if (hit.tuning == nullptr) return std::nullopt;
    if (input_.index->bans()->Find(pin.candidate, pin.key) != nullptr) return std::nullopt;
    for (const Candidate& c : hit.tuning->tuning.candidates) {
      if (c.id == pin.candidate && c.usable()) return c;
    }
    return std::nullopt;
  }

  static snapshot::StockChoice NotesOf(const Choice* stock) {
    if (stock == nullptr || ApiOf(stock->candidate.id) != Api::kGraph) return {};
    return {1, stock->candidate.numerical_notes, stock->candidate.behavior_notes, 0,
            stock->candidate.workspace_bytes};
  }

  static absl::Status WriteEntry(const Entry& entry,
                                 std::map<std::string, absl::StatusOr<Environment>>* environments,
                                 snapshot::SnapshotWriter* writer) {
    const auto environment = environments
                                 ->try_emplace(entry.key.environment_text,
                                               Environment::Parse(entry.key.environment_text))
                                 .first;
    if (!environment->second.ok()) return environment->second.status();
    ASSIGN_OR_RETURN(ConvProblem problem, ConvProblem::Parse(entry.key.problem_text));
    snapshot::SnapshotChoice choice(std::move(problem));
    choice.candidates = entry.candidates;
    choice.evidence = entry.evidence;
    choice.pinned = entry.pinned;
    choice.release = static_cast<uint64_t>(entry.release);
    choice.stock = entry.stock;
    return writer->Add(*environment->second, entry.channel, choice);
  }

  const SnapshotInput& input_;
  std::map<TuningKey, const Pin*> pins_;
  std::map<TuningKey, bool> pinned_done_;
  std::set<TuningKey> decided_;
  std::vector<Entry> choices_;
};

}  // namespace

absl::StatusOr<SnapshotContents> WriteSnapshot(const SnapshotInput& input,
                                               const std::string& path) {
  Builder builder(input);
  SnapshotContents contents;
  ASSIGN_OR_RETURN(
      contents.served,
      input.releases->ForEachServed(
          [&](Portfolio p) { builder.Add(snapshot::Channel::kStable, std::move(p)); },
          [&](Portfolio p) { builder.Add(snapshot::Channel::kCanary, std::move(p)); }));
  builder.AddPinsAlone();
  RETURN_IF_ERROR(builder.Write(path, &contents));
  return contents;
}

}  // namespace convtune::release
