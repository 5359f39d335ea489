#include "server/release/snapshot_build.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "db/snapshot/snapshot_file.h"
#include "proto/base/status_macros.h"
#include "proto/monitoring/log.h"
#include "server/commit/committer.h"

namespace convtune::release {
namespace {

using KeySet = snapshot::SnapshotWriter::KeySet;

// Adds choices of the snapshot at `path` to the writer's. A file that is not
// there, or is no snapshot of this format, has nothing.
KeySet CarryOver(const std::string& path, const KeySet* among,
                 const snapshot::SnapshotWriter::Wanted& wanted, snapshot::SnapshotWriter* writer) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  snapshot::SnapshotFile file;
  const char* reason = "";
  if (!file.Read(path.c_str(), &reason)) {
    log::Warn("$0: $1; nothing of it is carried over", path, reason);
    return {};
  }
  return writer->AddMissing(file.view(), among, wanted);
}

class Builder {
 public:
  Builder(const Publisher::Options& options, const Releases::Served& served,
          const std::vector<Pin>& pins, absl::Time now)
      : options_(options),
        writer_({static_cast<uint64_t>(served.release),
                 static_cast<uint64_t>(served.canary_release),
                 static_cast<uint32_t>(served.canary_permille), now}) {
    for (const Pin& pin : pins) pins_.emplace(pin.key, &pin);
  }

  // A portfolio without choices is a decision, too: its problem has none.
  void Add(snapshot::Channel channel, const Portfolio& portfolio) {
    if (channel == snapshot::Channel::kStable) decided_.insert(portfolio.key);
    const auto quarantined = options_.committer->QuarantinedOf(portfolio.key);
    std::vector<Candidate> candidates;
    if (const auto pin = pins_.find(portfolio.key); pin != pins_.end()) {
      pinned_.insert(pin->first);
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
    if (candidates.empty()) return;
    const absl::Status status = Write(channel, portfolio, std::move(candidates), pinned, stock);
    if (!status.ok()) {
      log::Warn("left out of the snapshot: $0: $1", portfolio.key.problem_text, status.ToString());
    }
  }

  // Pins of problems that have no choice.
  void AddPinsAlone() {
    for (const auto& [key, pin] : pins_) {
      if (pinned_.contains(key)) continue;
      Portfolio none;
      none.key = key;
      if (const lookup::IndexHit hit = options_.index->Find(key); hit.tuning != nullptr) {
        none.evidence = hit.tuning->tuning.evidence;
      }
      Add(snapshot::Channel::kStable, none);
    }
  }

  absl::Status Finish(const std::optional<KeySet>& carry_over, const std::string& path,
                      SnapshotContents* contents) {
    for (const Environment& environment : options_.current) {
      RETURN_IF_ERROR(writer_.AddEnvironment(environment));
    }
    const std::shared_ptr<const Bans> bans = options_.index->bans();
    const auto is_lost = [this, &bans](
                             const Environment& environment, const ConvProblem& problem,
                             const snapshot::SnapshotEntry& entry) -> std::optional<Bans> {
      const TuningKey key = {problem.ToText(), environment.ToText()};
      if (entry.pinned != 0 || !IsLost(key)) return std::nullopt;
      return bans->Of(key);
    };
    if (contents->served.damaged || !carry_over) {
      contents->carried = CarryOver(path, nullptr, is_lost, &writer_);
    } else if (!carry_over->empty()) {
      contents->carried = CarryOver(path, &*carry_over, is_lost, &writer_);
    }
    contents->choice_count = static_cast<int64_t>(writer_.choice_count());
    return writer_.Write(path);
  }

 private:
  // False where the database says why the problem has no choice.
  bool IsLost(const TuningKey& key) const {
    if (decided_.contains(key) || !options_.committer->QuarantinedOf(key).empty()) return false;
    const lookup::IndexHit hit = options_.index->Find(key);
    return hit.tuning == nullptr || !hit.tuning->IsOutdated();
  }

  std::optional<Candidate> Pinned(const Pin& pin) const {
    const lookup::IndexHit hit = options_.index->Find(pin.key);
    if (hit.tuning == nullptr) return std::nullopt;
    if (options_.index->bans()->Find(pin.candidate, pin.key) != nullptr) return std::nullopt;
    for (const Candidate& c : hit.tuning->tuning.candidates) {
      if (c.id == pin.candidate && c.usable()) return c;
    }
    return std::nullopt;
  }

  absl::Status Write(snapshot::Channel channel, const Portfolio& portfolio,
                     std::vector<Candidate> candidates, bool pinned, const Choice* stock) {
    const std::string& text = portfolio.key.environment_text;
    auto environment = environments_.find(text);
    if (environment == environments_.end()) {
      environment = environments_.emplace(text, Environment::Parse(text)).first;
    }
    RETURN_IF_ERROR(environment->second.status());
    ASSIGN_OR_RETURN(ConvProblem problem, ConvProblem::Parse(portfolio.key.problem_text));
    snapshot::SnapshotChoice choice(std::move(problem));
    choice.candidates = std::move(candidates);
    choice.evidence = portfolio.evidence;
    choice.pinned = pinned;
    choice.release = static_cast<uint64_t>(portfolio.release);
    if (stock != nullptr && ApiOf(stock->candidate.id) == Api::kGraph) {
      choice.stock = {1, stock->candidate.numerical_notes, stock->candidate.behavior_notes, 0,
                      stock->candidate.workspace_bytes};
    }
    return writer_.Add(*environment->second, channel, choice);
  }

  const Publisher::Options& options_;
  snapshot::SnapshotWriter writer_;
  std::map<TuningKey, const Pin*> pins_;
  std::set<TuningKey> pinned_;  // of them, those whose problem was added
  std::set<TuningKey> decided_;
  std::map<std::string, absl::StatusOr<Environment>> environments_;
};

}  // namespace

absl::StatusOr<SnapshotContents> WriteSnapshot(const Publisher::Options& options,
                                               const Releases& releases,
                                               const std::optional<KeySet>& carry_over,
                                               absl::Time now, const std::string& path) {
  SnapshotContents contents;
  ASSIGN_OR_RETURN(contents.served, releases.ReadServed());
  const std::vector<Pin> pins = options.index->ListPins("", now);
  for (const Pin& pin : pins) {
    if (pin.expire_time) contents.pin_expiry = std::min(contents.pin_expiry, *pin.expire_time);
  }
  Builder builder(options, contents.served, pins, now);
  for (const Portfolio& p : contents.served.stable) builder.Add(snapshot::Channel::kStable, p);
  for (const Portfolio& p : contents.served.canary) builder.Add(snapshot::Channel::kCanary, p);
  builder.AddPinsAlone();
  RETURN_IF_ERROR(builder.Finish(carry_over, path, &contents));
  return contents;
}

}  // namespace convtune::release
