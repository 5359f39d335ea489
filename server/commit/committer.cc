#include "server/commit/committer.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/model/tuning/ranking.h"
#include "proto/monitoring/log.h"
#include "server/decision/evidence.h"

namespace convtune::commit {
namespace {

constexpr size_t kIndexPage = 1000;
// A bound on the bans that each tuning is held against.
constexpr size_t kMostBans = 1000;
// A ban that is tried over all tunings lets commits go first this often.
constexpr absl::Duration kBetweenCommits = absl::Microseconds(250);
// A clock may be set; bans that expire are looked at as often as this.
constexpr absl::Duration kLookForExpired = absl::Seconds(1);

// Whoever ends a pin or a ban must say whose it is, by its number in the fleet: 0 for the
// daemon's own. So only the fleet's agent ends a fleet's, or an operator who means it, on a node
// that has left the fleet. `number`: the one that was said; `kind`: "pin" or "ban"; `end_in_fleet`
// and `end_here`: the commands behind `convtune`.
absl::Status CheckFleetNumber(std::string_view kind, std::string_view name, int64_t fleet_number,
                              int64_t number, std::string_view end_in_fleet,
                              std::string_view end_here) {
  if (fleet_number == number) return absl::OkStatus();
  if (fleet_number == 0) {
    return absl::FailedPreconditionError(
        Concat(kind, ": ", name, " is this daemon's own, and not fleet ", kind, " ", number));
  }
  return absl::FailedPreconditionError(
      Concat(kind, ": ", name, " is fleet ", kind, " ", fleet_number, ": `convtune fleet ",
             end_in_fleet, "` ends it everywhere, and on a node that has left the fleet `convtune ",
             end_here, " --fleet-", kind, " ", fleet_number, "`"));
}

absl::Status CheckFleetNumber(const Ban& ban, int64_t fleet_ban) {
  return CheckFleetNumber("ban", ban.Name(), ban.fleet_ban, fleet_ban,
                          absl::StrCat("ban delete ", ban.fleet_ban),
                          absl::StrCat("ban delete ", ban.number));
}

absl::Status CheckFleetNumber(const Pin& pin, int64_t fleet_pin) {
  const std::string end = absl::StrCat("unpin ", pin.key.problem_text, " --environment '",
                                       pin.key.environment_text, "'");
  return CheckFleetNumber("pin", "it", pin.fleet_pin, fleet_pin, end, end);
}

void MarkQuarantined(const QuarantineEntry& entry, Candidate* candidate) {
  candidate->status = CandidateStatus::kQuarantined;
  candidate->error_message = entry.message;
  ForgetTimes(candidate);
}

// False if it is not among those that ran.
bool TakeOut(const QuarantineEntry& entry, Tuning* tuning) {
  const auto candidate =
      std::find_if(tuning->candidates.begin(), tuning->candidates.end(),
                   [&entry](const Candidate& c) { return c.id == entry.candidate; });
  if (candidate == tuning->candidates.end() || !candidate->usable()) return false;
  MarkQuarantined(entry, &*candidate);
  decision::NoteQuarantined(tuning);
  return true;
}

}  // namespace

Committer::Committer(db::LayeredTunings tunings, lookup::TuningIndex* index, const Clock* clock,
                     absl::Duration retry_period)
    : tunings_(tunings),
      store_(tunings.store()),
      index_(index),
      retry_period_(retry_period),
      clock_(clock) {
  retries_ = std::thread([this] { RunRetries(); });
}

absl::Status Committer::Load(const std::vector<Ban>& shipped) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(const std::vector<Pin> pins, store_->ListPins());
  for (const Pin& pin : pins) index_->SetPin(pin);
  ASSIGN_OR_RETURN(std::vector<Ban> bans, store_->ListBans());
  const auto expired = [this](const Ban& ban)
                           REQUIRES(mutex_) { return DeleteIfExpired(ban, clock_->Now()); };
  std::erase_if(bans, expired);
  index_->SetBans(Bans().With(shipped).With(bans));
  {
    MutexLock state_lock(state_mutex_);
    for (const Bans::Shared& ban : index_->bans()->all()) listed_bans_[ban->number] = ban;
  }
  if (!shipped.empty()) {
    log::Info("$0 bans came with convtune (--no-errata leaves them out)", shipped.size());
  }
  for (const Pin& pin : pins) {
    const Bans::Shared ban = index_->bans()->Find(pin.candidate, pin.key);
    if (ban != nullptr && ban->shipped()) {
      log::Warn("the pin of $0 has no effect: $1 is banned by $2", pin.key.problem_text,
                ToText(pin.candidate), ban->NameAndReason());
    }
  }
  wake_retries_.SignalAll();  // one of them may expire
  const absl::Status write = store_->DeleteTunings({}).status();
  writable_ = write.ok();
  if (!write.ok()) {
    log::Error("the database takes no results, which are kept in memory only: $0",
               write.ToString());
  }
  ASSIGN_OR_RETURN(const std::vector<QuarantineEntry> entries, store_->ListQuarantine());
  MutexLock state_lock(state_mutex_);
  for (const QuarantineEntry& entry : entries) {
    quarantine_[entry.key][entry.candidate] = entry;
  }
  return absl::OkStatus();
}

bool Committer::Commit(Tuning tuning, const Environment& environment, bool forced) {
  Waiting self{&tuning, &environment, forced};
  {
    MutexLock lock(queue_mutex_);
    queue_.push_back(&self);
    while (!self.done && committing_) group_ended_.Wait(queue_mutex_);
    if (self.done) return self.persisted;
    committing_ = true;
  }
  std::vector<Waiting*> group;
  {
    MutexLock lock(mutex_);
    // Not before the lock: whoever comes until then goes along.
    group = TakeGroup(&self);
    CommitGroup(group);
  }
  MutexLock lock(queue_mutex_);
  for (Waiting* waiting : group) waiting->done = true;
  committing_ = false;
  ++groups_ended_;
  group_ended_.SignalAll();
  return self.persisted;
}

std::vector<Committer::Waiting*> Committer::TakeGroup(Waiting* first) {
  std::vector<Waiting*> group = {first};
  std::set<TuningKey> keys = {first->tuning->key};
  MutexLock lock(queue_mutex_);
  std::erase(queue_, first);
  // A key's second tuning is judged against its first.
  std::erase_if(queue_, [&](Waiting* waiting) {
    const bool is_first = keys.insert(waiting->tuning->key).second;
    if (is_first) group.push_back(waiting);
    return is_first;
  });
  return group;
}

void Committer::LetCommitsGoFirst() {
  MutexLock lock(queue_mutex_);
  const int64_t ended = groups_ended_;
  while (committing_ && groups_ended_ == ended) group_ended_.Wait(queue_mutex_);
}

void Committer::CommitGroup(const std::vector<Waiting*>& group) {
  WritePending();
  std::vector<Waiting*> better;
  for (Waiting* waiting : group) {
    Tuning* const tuning = waiting->tuning;
    const auto stored = index_->Find(tuning->key).tuning;
    // Another device may have found a culprit since this tuning, which is ranked, began.
    if (!QuarantinedOf(tuning->key).empty()) MarkAndRank(tuning);
    if (stored != nullptr) {
      const Tuning whole = Whole(*stored);
      const bool better_alone = Supersedes(*tuning, whole, waiting->forced);
      if (!decision::CarryOverOtherApi(whole, tuning) && !better_alone) {
        waiting->persisted = stored->persisted || stored->stand_in != nullptr;
        continue;
      }
      if (auto measured = MustLeaveOnDisk(*tuning)) {
        ServeInstead(*tuning, std::move(measured));
        waiting->persisted = true;  // the disk keeps the measurement on purpose
        continue;
      }
    }
    better.push_back(waiting);
  }
  size_t next = 0;
  const bool together = better.size() > 1 &&
                        store_
                            ->PutTunings([&]() -> absl::StatusOr<std::optional<db::TuningRecord>> {
                              if (next == better.size()) return std::nullopt;
                              const Waiting& waiting = *better[next++];
                              return db::TuningRecord{*waiting.tuning, *waiting.environment};
                            })
                            .ok();
  for (Waiting* waiting : better) {
    const Tuning& tuning = *waiting->tuning;
    // One that is refused does not keep the others from the disk.
    const absl::Status status =
        together ? absl::OkStatus() : store_->PutTuning(tuning, *waiting->environment);
    waiting->persisted = status.ok();
    Written(tuning, *waiting->environment, status);
  }
}

void Committer::Written(const Tuning& tuning, const Environment& environment,
                        const absl::Status& status) {
  if (status.ok()) {
    NoteKept(tuning.key);
  } else {
    Keep(tuning, environment, status);
  }
  index_->Put(tuning, status.ok());
  observer_(tuning.key, false);
  writable_ = pending_.empty();
}

void Committer::Keep(const Tuning& tuning, const Environment& environment,
                     const absl::Status& why) {
  log::Error("could not write the tuning of $0: $1", tuning.key.problem_text, why.ToString());
  WakeRetries();
  pending_.insert_or_assign(tuning.key, db::TuningRecord{tuning, environment});
  waiting_ = static_cast<int64_t>(pending_.size());
}

std::shared_ptr<const lookup::IndexedTuning> Committer::MustLeaveOnDisk(const Tuning& tuning) {
  if (tuning.evidence >= Evidence::kIncomplete) return nullptr;
  std::shared_ptr<const lookup::IndexedTuning> known = index_->Find(tuning.key).tuning;
  if (known == nullptr || !known->IsOutdated()) return nullptr;
  if (known->stand_in != nullptr) known = known->stand_in->outdated;
  const std::vector<Candidate>& candidates = known->tuning.candidates;
  const bool is_measured = std::any_of(candidates.begin(), candidates.end(),
                                       [](const Candidate& c) { return c.timed(); });
  return is_measured ? known : nullptr;
}

Tuning Committer::Whole(const lookup::IndexedTuning& known) {
  // The index has but a part of the candidates, and no count of all samples.
  Tuning whole = known.tuning.ToTuning();
  if (absl::StatusOr<Tuning> stored = GetLocked(whole.key); stored.ok()) {
    stored->evidence = whole.evidence;
    stored->incomplete_reasons = whole.incomplete_reasons;
    stored->incomplete_message = whole.incomplete_message;
    return *std::move(stored);
  }
  return whole;
}

bool Committer::IsBetterThanStored(const Tuning& tuning) {
  const auto stored = index_->Find(tuning.key).tuning;
  if (stored == nullptr) return true;
  // Evidence comes first: where it differs, nothing has to be read.
  if (tuning.evidence != stored->tuning.evidence) {
    return tuning.evidence > stored->tuning.evidence;
  }
  return Supersedes(tuning, Whole(*stored));
}

absl::StatusOr<int64_t> Committer::PutAll(const db::TuningSource& next, const Takes& takes) {
  WritePending();
  std::vector<std::shared_ptr<const lookup::IndexedTuning>> taken;
  const auto next_taken = [&]() -> absl::StatusOr<std::optional<db::TuningRecord>> {
    while (true) {
      ASSIGN_OR_RETURN(std::optional<db::TuningRecord> record, next());
      if (!record.has_value()) return record;
      ASSIGN_OR_RETURN(const bool is_taken, takes(&record->tuning));
      if (!is_taken) continue;
      taken.push_back(index_->MakeEntry(record->tuning, /*persisted=*/true));
      return record;
    }
  };
  RETURN_IF_ERROR(store_->PutTunings(next_taken));
  for (auto& prepared : taken) {
    const TuningKey key = prepared->tuning.key.Whole();
    NoteKept(key);
    index_->Put(std::move(prepared));
    observer_(key, false);
  }
  return static_cast<int64_t>(taken.size());
}

absl::StatusOr<v1::ImportBundleResponse> Committer::Import(const db::TuningSource& next) {
  MutexLock lock(mutex_);
  v1::ImportBundleResponse counts;
  const auto is_better = [&](Tuning* tuning) REQUIRES(mutex_) -> absl::StatusOr<bool> {
    const bool holds = HoldsHere(*tuning);
    // As the stored one was, so that a second import changes nothing.
    MarkAndRank(tuning);
    if (holds && IsBetterThanStored(*tuning) && MustLeaveOnDisk(*tuning) == nullptr) return true;
    counts.set_kept_count(counts.kept_count() + 1);
    return false;
  };
  ASSIGN_OR_RETURN(const int64_t taken, PutAll(next, is_better));
  counts.set_taken_count(taken);
  return counts;
}

void Committer::MarkAndRank(Tuning* tuning) const {
  const auto quarantined = QuarantinedOf(tuning->key);
  for (Candidate& candidate : tuning->candidates) {
    if (const auto found = quarantined.find(candidate.id); found != quarantined.end()) {
      MarkQuarantined(found->second, &candidate);
    }
  }
  decision::NoteQuarantined(tuning);
}

absl::StatusOr<v1::ApplyTuningsResponse> Committer::ApplyFleet(const db::TuningSource& next) {
  MutexLock lock(mutex_);
  v1::ApplyTuningsResponse counts;
  const auto changes = [&](Tuning* tuning) REQUIRES(mutex_) -> absl::StatusOr<bool> {
    ASSIGN_OR_RETURN(const bool own_waits, store_->WaitsForFleet(tuning->key));
    if (own_waits || pending_.contains(tuning->key)) {
      v1::FleetKey* const deferred = counts.add_deferred();
      deferred->set_environment_text(tuning->key.environment_text);
      deferred->set_problem_text(tuning->key.problem_text);
      return false;
    }
    const bool holds = HoldsHere(*tuning);
    MarkAndRank(tuning);
    const absl::StatusOr<Tuning> stored = tunings_.GetTuning(tuning->key);
    if (holds && MustLeaveOnDisk(*tuning) == nullptr && !(stored.ok() && *stored == *tuning)) {
      return true;
    }
    counts.set_unchanged_count(counts.unchanged_count() + 1);
    return false;
  };
  ASSIGN_OR_RETURN(const int64_t taken, PutAll(next, changes));
  counts.set_taken_count(taken);
  return counts;
}

void Committer::WritePending() {
  while (!pending_quarantine_.empty()) {
    if (!store_->PutQuarantine(pending_quarantine_.back()).ok()) break;
    pending_quarantine_.pop_back();
  }
  while (!pending_.empty()) {
    const auto it = pending_.begin();
    const absl::Status status = store_->PutTuning(it->second.tuning, it->second.environment);
    if (absl::IsInvalidArgument(status)) {
      log::Error("cannot keep the tuning of $0: $1", it->second.tuning.key.problem_text,
                 status.ToString());
      NoteKept(it->first);
      continue;
    }
    if (!status.ok()) {
      log::Warn("$0 results wait for the disk: $1", pending_.size(), status.ToString());
      return;
    }
    if (StandInOf(it->first) == nullptr) index_->Put(it->second.tuning, true);
    NoteKept(it->first);
    if (pending_.empty()) log::Info("the disk takes results again; none is waiting");
  }
  writable_ = store_->DeleteTunings({}).ok();
}

void Committer::AwaitWork() {
  if (stopping_) return;
  const std::vector<Bans::Shared>& bans = index_->bans()->all();
  const bool expires = std::any_of(bans.begin(), bans.end(), [](const Bans::Shared& ban) {
    return ban->expire_time.has_value();
  });
  if (!pending_.empty() || !pending_quarantine_.empty()) {
    wake_retries_.WaitFor(mutex_, absl::ToChronoNanoseconds(retry_period_));
  } else if (expires) {
    wake_retries_.WaitFor(mutex_, absl::ToChronoNanoseconds(kLookForExpired));
  } else {
    wake_retries_.Wait(mutex_);
  }
}

void Committer::RunRetries() {
  while (true) {
    {
      MutexLock lock(mutex_);
      AwaitWork();
      if (!pending_.empty() || !pending_quarantine_.empty()) WritePending();
      if (stopping_) return;
    }
    EndExpiredBans();
  }
}

void Committer::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    wake_retries_.SignalAll();
  }
  if (!retries_.joinable()) return;
  retries_.join();
  if (waiting() > 0) log::Error("$0 results are lost: the disk never took them", waiting());
}

absl::StatusOr<int64_t> Committer::Delete(std::vector<TuningKey> keys, bool fleets_alone) {
  MutexLock lock(mutex_);
  if (fleets_alone) {
    std::vector<TuningKey> of_fleet;
    for (const TuningKey& key : keys) {
      const absl::StatusOr<Tuning> tuning = GetLocked(key);
      if (absl::IsNotFound(tuning.status())) continue;
      RETURN_IF_ERROR(tuning.status());
      if (tuning->origin == Origin::kFleet) of_fleet.push_back(key);
    }
    keys = std::move(of_fleet);
  }
  ASSIGN_OR_RETURN([[maybe_unused]] const int64_t on_disk, store_->DeleteTunings(keys));
  int64_t deleted = 0;
  for (const TuningKey& key : keys) {
    NoteKept(key);
    // A layer beneath the database may have one.
    if (const absl::StatusOr<Tuning> left = tunings_.GetTuning(key); left.ok()) {
      index_->Put(*left, true);
    } else if (index_->Erase(key)) {
      ++deleted;
    }
    observer_(key, false);
  }
  return deleted;
}

absl::Status Committer::PutPin(const CandidatePattern& candidate, Pin* pin) {
  MutexLock lock(mutex_);
  absl::StatusOr<Tuning> tuning = GetLocked(pin->key);
  if (!tuning.ok()) return tuning.status();
  const Bans bans = index_->bans()->Of(pin->key);
  const auto is_named = [&](const Candidate& c) { return ToText(c.id) == candidate.ToText(); };
  const bool one = std::any_of(tuning->candidates.begin(), tuning->candidates.end(),
                               [&](const Candidate& c) { return c.usable() && is_named(c); });
  Bans::Shared ban;
  const Candidate* const best = PickAllowed(*tuning, [&](const Candidate& c) {
    if (one ? !is_named(c) : !candidate.Fits(c.id)) return false;
    Bans::Shared found = bans.Find(c.id);
    if (found != nullptr) ban = found;
    return found == nullptr;
  });
  if (best == nullptr && ban != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("candidate: ", candidate.ToText(), " is banned by ", ban->NameAndReason()));
  }
  if (best == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "candidate: ", candidate.ToText(), " must be one that the tuning lists and that ran"));
  }
  pin->candidate = best->id;
  RETURN_IF_ERROR(store_->PutPin(*pin));
  index_->SetPin(*pin);
  IndexAnew(*tuning);
  observer_(pin->key, true);
  return absl::OkStatus();
}

void Committer::IndexAnew(const Tuning& tuning) {
  const auto stand_in = StandInOf(tuning.key);
  if (stand_in == nullptr) {
    index_->Put(tuning, !pending_.contains(tuning.key));
    return;
  }
  std::shared_ptr<const lookup::IndexedTuning> outdated = stand_in->outdated;
  const absl::StatusOr<Tuning> stored = GetToKeep(tuning.key);
  if (stored.ok()) outdated = index_->MakeEntry(*stored, /*persisted=*/true);
  ServeInstead(tuning, std::move(outdated));
}

absl::Status Committer::DeletePin(const TuningKey& key, int64_t fleet_pin) {
  MutexLock lock(mutex_);
  const std::shared_ptr<const Pin> pin = index_->Find(key).pin;
  if (pin != nullptr) RETURN_IF_ERROR(CheckFleetNumber(*pin, fleet_pin));
  RETURN_IF_ERROR(store_->DeletePin(key));
  index_->ErasePin(key);
  observer_(key, true);
  return absl::OkStatus();
}

void Committer::ForEachUnder(const Ban& ban,
                             const std::function<void(const Tuning&, bool)>& visit) {
  const Bans only({std::make_shared<const Ban>(ban)});
  lookup::TuningPage page;
  SteadyTime let_go = SteadyTime::Now();
  do {
    const TuningKey after = page.more ? page.last() : TuningKey();
    page = index_->List("", kIndexPage, after, "");
    for (const auto& indexed : page.tunings) {
      const TuningKey key = indexed->tuning.key.Whole();
      const Bans held = only.Of(key);
      if (held.empty()) continue;
      if (SteadyTime::Now() - let_go > kBetweenCommits) {
        LetCommitsGoFirst();
        let_go = SteadyTime::Now();
      }
      MutexLock lock(mutex_);
      absl::StatusOr<Tuning> tuning = GetLocked(key);
      if (absl::IsNotFound(tuning.status())) continue;  // deleted meanwhile
      if (!tuning.ok()) {
        // Its answers must heed the ban all the same.
        log::Warn("$0: of $1 only what is in memory is known: $2", ban.Name(), key.problem_text,
                  tuning.status().ToString());
        tuning = indexed->tuning.ToTuning();
      }
      bool listed = false, usable = false;
      for (const Candidate& c : tuning->candidates) {
        if (held.Find(c.id) == nullptr) continue;
        listed = true;
        usable = usable || c.usable();
      }
      // Where other bans fit the tuning, too, a miss counts its candidates that did not run,
      // without the banned ones (IndexedBans::unusable).
      if (usable || (listed && indexed->bans != nullptr)) visit(*tuning, usable);
    }
  } while (page.more);
}

absl::StatusOr<v1::CreateBanResponse> Committer::AddBan(Ban* ban, int max_changes, bool dry_run) {
  std::shared_ptr<const Bans> before;
  {
    MutexLock lock(mutex_);
    before = index_->bans();
    if (!dry_run) {
      RETURN_IF_ERROR(before->CheckIsNew(*ban, kMostBans));
      ASSIGN_OR_RETURN(ban->number, store_->AddBan(*ban));
      index_->SetBans(before->With(*ban));
      wake_retries_.SignalAll();  // it may expire
      log::Info("$0 made by $1: $2 is no answer", ban->NameAndReason(), ban->author,
                ban->candidate.ToText());
    }
  }
  const Bans after = before->With(*ban);
  v1::CreateBanResponse effects;
  ForEachUnder(*ban, [&](const Tuning& tuning, bool usable) REQUIRES(mutex_) {
    if (usable) {
      const std::shared_ptr<const Pin> pin = index_->Find(tuning.key).pin;
      AddBanEffect(tuning, pin.get(), *before, after, clock_->Now(), max_changes, &effects);
    }
    if (!dry_run) IndexAnew(tuning);
  });
  if (dry_run) return effects;
  {
    MutexLock lock(mutex_);
    for (const Bans::Shared& held : index_->bans()->all()) {
      if (held->number != ban->number) continue;  // else it has ended meanwhile
      MutexLock state_lock(state_mutex_);
      listed_bans_[held->number] = held;
    }
    bans_changed_();
  }
  return effects;
}

absl::Status Committer::DeleteBan(int64_t number, int64_t fleet_ban) {
  {
    MutexLock lock(mutex_);
    for (const Bans::Shared& known : index_->bans()->all()) {
      if (known->number == number) RETURN_IF_ERROR(CheckFleetNumber(*known, fleet_ban));
    }
    RETURN_IF_ERROR(store_->DeleteBan(number));
  }
  EndBan(number, "ended");
  return absl::OkStatus();
}

bool Committer::DeleteIfExpired(const Ban& ban, absl::Time now) {
  if (!HasExpired(ban.expire_time, now)) return false;
  // Where the disk refuses, the row goes at the next start.
  const absl::Status deleted = store_->DeleteBan(ban.number);
  if (!deleted.ok()) log::Warn("$0 expired: $1", ban.Name(), deleted.ToString());
  return true;
}

void Committer::EndBan(int64_t number, std::string_view how) {
  Bans::Shared ban;
  {
    MutexLock lock(mutex_);
    std::vector<Bans::Shared> all = index_->bans()->all();
    const auto found = std::find_if(all.begin(), all.end(), [number](const Bans::Shared& known) {
      return known->number == number;
    });
    if (found == all.end()) return;
    ban = *found;
    all.erase(found);
    index_->SetBans(Bans(std::move(all)));
  }
  log::Info("$0 $1: $2", ban->Name(), how, ban->candidate.ToText());
  ForEachUnder(*ban, [&](const Tuning& tuning, bool) REQUIRES(mutex_) { IndexAnew(tuning); });
  {
    MutexLock state_lock(state_mutex_);
    listed_bans_.erase(number);
  }
  MutexLock lock(mutex_);
  bans_changed_();
}

std::vector<Bans::Shared> Committer::ListBans() const {
  MutexLock lock(state_mutex_);
  std::vector<Bans::Shared> bans;
  for (const auto& [number, ban] : listed_bans_) bans.push_back(ban);
  return bans;
}

void Committer::EndExpiredBans() {
  const absl::Time now = clock_->Now();
  const std::shared_ptr<const Bans> bans = index_->bans();
  for (const Bans::Shared& ban : bans->all()) {
    bool expired = false;
    {
      MutexLock lock(mutex_);
      expired = DeleteIfExpired(*ban, now);
    }
    if (expired) EndBan(ban->number, "expired");
  }
}

void Committer::Quarantine(const QuarantineEntry& entry) {
  {
    MutexLock state_lock(state_mutex_);
    quarantine_[entry.key][entry.candidate] = entry;
  }
  MutexLock lock(mutex_);
  observer_(entry.key, true);
  const absl::Status status = store_->PutQuarantine(entry);
  if (!status.ok()) {
    log::Error("could not write a quarantine entry: $0", status.ToString());
    WakeRetries();
    pending_quarantine_.push_back(entry);
  }
  TakeOutOfAnswers(entry);
}

int64_t Committer::quarantined() const {
  MutexLock lock(state_mutex_);
  int64_t count = 0;
  for (const auto& [key, candidates] : quarantine_) {
    count += static_cast<int64_t>(candidates.size());
  }
  return count;
}

std::map<CandidateId, QuarantineEntry> Committer::QuarantinedOf(const TuningKey& key) const {
  MutexLock lock(state_mutex_);
  const auto found = quarantine_.find(key);
  if (found == quarantine_.end()) return {};
  return found->second;
}

void Committer::TakeOutOfAnswers(const QuarantineEntry& entry) {
  if (index_->Find(entry.key).tuning == nullptr) return;
  const absl::StatusOr<Environment> environment = Environment::Parse(entry.key.environment_text);
  if (!environment.ok()) return;
  const auto stand_in = StandInOf(entry.key);
  absl::StatusOr<Tuning> stored = GetToKeep(entry.key);
  if (stored.ok() && TakeOut(entry, &*stored)) {
    const absl::Status written = store_->PutTuning(*stored, *environment);
    if (stand_in == nullptr) return Written(*stored, *environment, written);
    if (!written.ok()) Keep(*stored, *environment, written);
  }
  if (stand_in == nullptr) return;
  Tuning served = stand_in->whole;
  TakeOut(entry, &served);
  IndexAnew(served);
}

absl::Status Committer::LiftQuarantine(const TuningKey& key,
                                       const std::function<bool(const QuarantineEntry&)>& lifted) {
  MutexLock lock(mutex_);
  std::vector<CandidateId> candidates;
  for (const auto& [candidate, entry] : QuarantinedOf(key)) {
    if (lifted(entry)) candidates.push_back(candidate);
  }
  if (candidates.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(store_->DeleteQuarantine(key, candidates));
  const auto among = [&candidates](const CandidateId& id) {
    return std::find(candidates.begin(), candidates.end(), id) != candidates.end();
  };
  std::erase_if(pending_quarantine_, [&](const QuarantineEntry& entry) {
    return entry.key == key && among(entry.candidate);
  });
  {
    MutexLock state_lock(state_mutex_);
    const auto found = quarantine_.find(key);
    if (found != quarantine_.end()) {
      std::erase_if(found->second, [&](const auto& entry) { return among(entry.first); });
      if (found->second.empty()) quarantine_.erase(found);
    }
  }
  observer_(key, true);
  return absl::OkStatus();
}

}  // namespace convtune::commit
