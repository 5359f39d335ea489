#include "server/release/releases.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/convert/record_codec.h"
#include "proto/model/violation.h"
#include "proto/monitoring/log.h"
#include "server/release/portfolio.h"

namespace convtune::release {
namespace {

// Portfolios in one transaction: little enough that tunings get their turn.
constexpr size_t kBatch = 1000;
constexpr size_t kIndexPage = 1000;

bool HasRun(const std::vector<Candidate>& candidates, const CandidateId& candidate) {
  return std::any_of(candidates.begin(), candidates.end(),
                     [&candidate](const Candidate& c) { return c.id == candidate && c.usable(); });
}

// Of those whose builds are known.
uint32_t NotesOf(const Provenance& libraries) {
  return (libraries.cublaslt_build.empty() ? 0 : NoteBit(BehaviorNote::kCublasLtDependency)) |
         (libraries.nvrtc_build.empty() ? 0 : NoteBit(BehaviorNote::kRuntimeCompilation));
}

}  // namespace

v1::Release ToProto(const Release& release) {
  v1::Release out;
  out.set_number(release.number);
  out.set_state(static_cast<v1::ReleaseState>(release.state));
  out.set_canary_permille(release.canary_permille);
  out.set_restores(release.restores);
  out.set_author(release.author);
  out.set_reason(release.reason);
  *out.mutable_create_time() = convtune::ToProto(release.create_time);
  out.set_end_author(release.end_author);
  out.set_end_reason(release.end_reason);
  if (release.end_time) *out.mutable_end_time() = convtune::ToProto(*release.end_time);
  return out;
}

Portfolio Releases::Proposed(const TuningKey& key, const Known& known) const {
  // Do not publish provisional tunings: it would be in the way of
  // the next one, which needs no promotion.
  if (known != nullptr && known->tuning.evidence >= options_.floor && !known->IsOutdated()) {
    return ChoosePortfolio(*known);
  }
  Portfolio none;
  none.key = key;
  return none;
}

bool Releases::Ran(const lookup::IndexedTuning& known, const CandidateId& candidate) const {
  if (HasRun(known.tuning.candidates, candidate)) return true;
  const absl::StatusOr<Tuning> whole = options_.read(known.tuning.key.Whole());
  return whole.ok() && HasRun(whole->candidates, candidate);
}

void Releases::RemoveOutdated(Portfolio* portfolio) const {
  const auto libraries = options_.index->libraries().find(portfolio->key.environment_text);
  if (libraries == options_.index->libraries().end()) return;
  const uint32_t notes = NotesOf(libraries->second);
  if (notes == 0) return;
  const Known known = options_.index->Find(portfolio->key).tuning;
  const bool outdated = known != nullptr && known->IsOutdated();
  std::erase_if(portfolio->choices, [&](const Choice& choice) {
    if ((choice.roles & kServedRoles) == 0) return false;
    if (outdated) return true;
    if ((choice.candidate.behavior_notes & notes) == 0) return false;
    return known == nullptr || !Ran(*known, choice.candidate.id);
  });
}

bool Releases::KeepHolding(Portfolio* portfolio) const {
  const size_t choices = portfolio->choices.size();
  RemoveOutdated(portfolio);
  bool holds = portfolio->choices.size() == choices;
  const auto all = options_.index->bans();
  if (all->empty()) return holds;
  const Bans bans = all->Of(portfolio->key);
  for (Choice& choice : portfolio->choices) {
    if ((choice.roles & kServedRoles) == 0 || bans.Find(choice.candidate.id) == nullptr) continue;
    // The notes of the stock choice stay what they are.
    choice.roles &= ~kServedRoles;
    holds = false;
  }
  std::erase_if(portfolio->choices, [](const Choice& choice) { return choice.roles == 0; });
  return holds;
}

bool Releases::ServesWhatDoesNotHold(const TuningKey& key, int64_t release) const {
  absl::StatusOr<Portfolio> served = options_.store->GetPortfolio(key, release);
  return served.ok() && !KeepHolding(&*served);
}

void Releases::ForEachIndexed(const std::string& environment_text,
                              const std::function<void(const Known&)>& visit) const {
  lookup::TuningPage page;
  do {
    const TuningKey after = page.more ? page.last() : TuningKey();
    page = options_.index->List(environment_text, kIndexPage, after, "");
    for (const Known& known : page.tunings) visit(known);
  } while (page.more);
}

absl::Status Releases::ReadPortfolios(int64_t release, const std::string& environment_text,
                                      const std::function<void(Portfolio)>& visit,
                                      bool* damaged) const {
  return options_.store->ForEachPortfolio(
      environment_text, release, visit, [damaged](const std::string& what) {
        if (damaged != nullptr) *damaged = true;
        log::Error("left out a choice of the database: $0", what);
      });
}

absl::Status Releases::ReadChoices() {
  MutexLock lock(mutex_);
  const Release* promoted = history_.promoted();
  const Release* canary = history_.canary();
  if (promoted != nullptr) {
    RETURN_IF_ERROR(
        ReadPortfolios(promoted->number, "", [this](const Portfolio& p) REQUIRES(mutex_) {
          if (!p.choices.empty()) promoted_[p.key.Digest()] = p.Fingerprint();
        }));
  }
  if (canary == nullptr) return absl::OkStatus();
  return ReadPortfolios(canary->number, "", [this, canary](const Portfolio& p) REQUIRES(mutex_) {
    if (p.release == canary->number) canary_[p.key.Digest()] = p.Fingerprint();
  });
}

absl::Status Releases::Load() {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(std::vector<Release> releases, options_.store->ListReleases());
  history_ = ReleaseHistory(std::move(releases));
  return absl::OkStatus();
}

absl::Status Releases::PutAll(const Release& release, const std::vector<Portfolio>& portfolios) {
  for (size_t begin = 0; begin == 0 || begin < portfolios.size(); begin += kBatch) {
    const size_t end = std::min(portfolios.size(), begin + kBatch);
    RETURN_IF_ERROR(options_.store->PutRelease(
        release, {portfolios.begin() + static_cast<std::ptrdiff_t>(begin),
                  portfolios.begin() + static_cast<std::ptrdiff_t>(end)}));
  }
  return absl::OkStatus();
}

bool Releases::IsServed(const TuningDigest& digest, uint64_t fingerprint) const {
  const auto own = canary_.find(digest);
  if (own != canary_.end()) return own->second == fingerprint;
  const auto served = promoted_.find(digest);
  return served != promoted_.end() && served->second == fingerprint;
}

absl::StatusOr<bool> Releases::Reconcile(std::vector<TuningKey> keys, bool all) {
  if (all) {
    ForEachIndexed("", [&](const Known& known) { keys.push_back(known->tuning.key.Whole()); });
  }
  if (keys.empty()) return false;
  MutexLock lock(mutex_);
  std::vector<Portfolio> put;       // into the promoted release
  std::vector<Portfolio> withdraw;  // from the canary
  bool holds_again = false;
  for (const TuningKey& key : keys) {
    const TuningDigest digest = key.Digest();
    const Known known = options_.index->Find(key).tuning;
    Portfolio proposed = Proposed(key, known);
    below_floor_.erase(digest);
    if (!proposed.choices.empty()) {
      if (!promoted_.contains(digest)) {
        put.push_back(std::move(proposed));
      } else if (IsServed(digest, proposed.Fingerprint())) {
        waiting_.erase(digest);
        holds_again = holds_again || left_out_.contains(digest);
      } else if (ServesWhatDoesNotHold(key, history_.promoted()->number)) {
        waiting_.erase(digest);
        put.push_back(std::move(proposed));
      } else {
        waiting_.insert(digest);
      }
      continue;
    }
    waiting_.erase(digest);
    if (known != nullptr) {
      if (!promoted_.contains(digest) && known->tuning.evidence < options_.floor) {
        below_floor_.insert(digest);
      }
      // None of an unjudged tuning's results is ever served.
      if (!known->IsOutdated() && !known->tuning.has(IncompleteReason::kUnjudged)) continue;
    }
    if (canary_.contains(digest)) withdraw.push_back(proposed);
    if (promoted_.contains(digest)) put.push_back(std::move(proposed));
  }
  if (!put.empty()) {
    const Release* promoted = history_.promoted();
    const Release release =
        promoted != nullptr ? *promoted : history_.First(ToMicros(options_.clock->Now()));
    RETURN_IF_ERROR(PutAll(release, put));
    history_.Put(release);
    for (const Portfolio& portfolio : put) {
      if (portfolio.choices.empty()) {
        promoted_.erase(portfolio.key.Digest());
      } else {
        promoted_[portfolio.key.Digest()] = portfolio.Fingerprint();
      }
    }
  }
  if (!withdraw.empty()) {
    RETURN_IF_ERROR(PutAll(*history_.canary(), withdraw));
    for (const Portfolio& portfolio : withdraw) {
      canary_[portfolio.key.Digest()] = portfolio.Fingerprint();
    }
  }
  const bool may_promote = options_.auto_promote && !waiting_.empty() &&
                           history_.canary() == nullptr && !history_.holds_back();
  if (!may_promote) return !put.empty() || !withdraw.empty() || holds_again;
  RETURN_IF_ERROR(PromoteLocked({"convtuned", "--auto-promote", ToMicros(options_.clock->Now())}, 0,
                                Waiting(/*fleet_only=*/false))
                      .status());
  return true;
}

std::vector<Portfolio> Releases::Waiting(bool fleet_only) const {
  std::vector<Portfolio> changes;
  if (history_.canary() != nullptr || history_.promoted() == nullptr) return changes;
  ForEachIndexed("", [this, fleet_only, &changes](const Known& known) REQUIRES(mutex_) {
    const TuningKey key = known->tuning.key.Whole();
    if (!waiting_.contains(key.Digest())) return;
    if (fleet_only && known->tuning.origin != Origin::kFleet) return;
    Portfolio proposed = Proposed(key, known);
    if (!proposed.choices.empty()) changes.push_back(std::move(proposed));
  });
  return changes;
}

absl::StatusOr<Release> Releases::PromoteLocked(const ReleaseDecision& decision,
                                                int canary_permille,
                                                const std::vector<Portfolio>& changes) {
  ASSIGN_OR_RETURN(const Release release,
                   history_.Promote(decision, canary_permille, !changes.empty()));
  // All in one transaction: half a release must never be served.
  RETURN_IF_ERROR(options_.store->PutRelease(release, changes));
  history_.Put(release);
  Fingerprints* const into = release.state == ReleaseState::kCanary ? &canary_ : &promoted_;
  for (const Portfolio& portfolio : changes) {
    (*into)[portfolio.key.Digest()] = portfolio.Fingerprint();
    waiting_.erase(portfolio.key.Digest());
  }
  if (release.state == ReleaseState::kPromoted && changes.empty()) {
    const uint64_t none = Portfolio().Fingerprint();
    for (const auto& [digest, fingerprint] : canary_) {
      if (fingerprint == none) {
        promoted_.erase(digest);
      } else {
        promoted_[digest] = fingerprint;
      }
    }
    canary_.clear();
  }
  if (history_.oldest_kept() > 0) {
    const auto thinned = options_.store->ThinPortfolios(history_.oldest_kept());
    if (!thinned.ok()) log::Warn("thinning releases: $0", thinned.status().ToString());
  }
  return release;
}

absl::StatusOr<Release> Releases::Promote(const ReleaseDecision& decision, int canary_permille) {
  MutexLock lock(mutex_);
  return PromoteLocked(decision, canary_permille, Waiting(/*fleet_only=*/false));
}

absl::StatusOr<std::optional<Release>> Releases::PromoteFleet(const ReleaseDecision& decision) {
  MutexLock lock(mutex_);
  if (const Release* canary = history_.canary()) {
    return absl::FailedPreconditionError(
        absl::StrCat("release: release ", canary->number,
                     " of this daemon is a canary: promote it or roll it back first"));
  }
  const std::vector<Portfolio> changes = Waiting(/*fleet_only=*/true);
  if (changes.empty()) return std::nullopt;
  ASSIGN_OR_RETURN(Release release, PromoteLocked(decision, 0, changes));
  return release;
}

absl::StatusOr<Release> Releases::RollBack(const ReleaseDecision& decision, int64_t to) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(const Release release, history_.RollBack(decision, to));
  // Choices of the old release, where something else is served now.
  std::vector<Portfolio> restored;
  if (release.restores != 0) {
    RETURN_IF_ERROR(ReadPortfolios(release.restores, "", [&](Portfolio p) REQUIRES(mutex_) {
      if (p.choices.empty()) return;
      const auto served = promoted_.find(p.key.Digest());
      if (served != promoted_.end() && served->second == p.Fingerprint()) return;
      restored.push_back(std::move(p));
    }));
  }
  RETURN_IF_ERROR(options_.store->PutRelease(release, restored));
  history_.Put(release);
  canary_.clear();
  for (const Portfolio& p : restored) promoted_[p.key.Digest()] = p.Fingerprint();
  // The choice served until now may be the better one: it waits again.
  ForEachIndexed("", [this](const Known& known) REQUIRES(mutex_) {
    const Portfolio proposed = Proposed(known->tuning.key.Whole(), known);
    const TuningDigest digest = proposed.key.Digest();
    if (!proposed.choices.empty() && !IsServed(digest, proposed.Fingerprint())) {
      waiting_.insert(digest);
    }
  });
  return release;
}

bool Releases::HasChoice(const TuningKey& key) const {
  MutexLock lock(mutex_);
  return promoted_.contains(key.Digest());
}

v1::ListReleasesResponse Releases::List() const {
  MutexLock lock(mutex_);
  v1::ListReleasesResponse list;
  const std::vector<Release>& releases = history_.releases();
  for (auto it = releases.rbegin(); it != releases.rend(); ++it) {
    *list.add_releases() = ToProto(*it);
  }
  if (const Release* promoted = history_.promoted()) list.set_promoted(promoted->number);
  if (const Release* canary = history_.canary()) list.set_canary(canary->number);
  list.set_waiting_changes(static_cast<int64_t>(waiting_.size()));
  list.set_auto_promote_held(options_.auto_promote && history_.holds_back());
  list.set_publish_evidence(static_cast<v1::Evidence>(options_.floor));
  list.set_below_evidence_count(static_cast<int64_t>(below_floor_.size()));
  return list;
}

absl::StatusOr<ReleaseDiff> Releases::Diff(int64_t from, int64_t to,
                                           const std::string& environment_text) const {
  ReleaseDiff diff;
  {
    MutexLock lock(mutex_);
    const Release* promoted = history_.promoted();
    diff.from = from != 0 || promoted == nullptr ? from : promoted->number;
    for (const int64_t number : {diff.from, to}) {
      if (number != 0 && history_.Find(number) == nullptr) {
        return MissingError({"release", absl::StrCat(number)},
                            absl::StrCat("release: there is no release ", number));
      }
    }
  }
  std::map<TuningKey, Portfolio> before;
  RETURN_IF_ERROR(ReadPortfolios(diff.from, environment_text, [&before](Portfolio p) {
    const TuningKey key = p.key;
    before[key] = std::move(p);
  }));
  const auto compare = [&](Portfolio after) {
    Portfolio had;
    had.key = after.key;
    const auto found = before.find(after.key);
    if (found != before.end()) had = std::move(found->second);
    if (had.Fingerprint() == after.Fingerprint()) return;
    diff.changes.push_back({std::move(had), std::move(after)});
  };
  if (to != 0) {
    RETURN_IF_ERROR(ReadPortfolios(to, environment_text, compare));
  } else {
    ForEachIndexed(environment_text, [this, &compare](const Known& known) {
      Portfolio proposed = Proposed(known->tuning.key.Whole(), known);
      if (!proposed.choices.empty()) compare(std::move(proposed));
    });
  }
  return diff;
}

absl::StatusOr<Releases::Served> Releases::ReadServed() const {
  MutexLock lock(mutex_);  // so that no release changes in between
  Served served;
  const Release* promoted = history_.promoted();
  if (promoted == nullptr) return served;
  served.release = promoted->number;
  left_out_.clear();
  const auto add = [this](Portfolio p, std::vector<Portfolio>* to) REQUIRES(mutex_) {
    if (!KeepHolding(&p)) left_out_.insert(p.key.Digest());
    to->push_back(std::move(p));
  };
  RETURN_IF_ERROR(ReadPortfolios(
      promoted->number, "",
      [&](Portfolio p) REQUIRES(mutex_) { add(std::move(p), &served.stable); }, &served.damaged));
  const Release* running = history_.canary();
  if (running == nullptr) return served;
  served.canary_release = running->number;
  served.canary_permille = running->canary_permille;
  RETURN_IF_ERROR(ReadPortfolios(
      running->number, "",
      [&](Portfolio p) REQUIRES(mutex_) {
        if (p.release == running->number && !p.choices.empty()) add(std::move(p), &served.canary);
      },
      &served.damaged));
  return served;
}

}  // namespace convtune::release
