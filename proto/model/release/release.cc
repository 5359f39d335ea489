#include "proto/model/release/release.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/model/violation.h"

namespace convtune {
namespace {

// `running`, a canary, as the decision ends it.
Release Ended(Release running, ReleaseState state, const ReleaseDecision& decision) {
  running.state = state;
  running.end_author = decision.author;
  running.end_reason = decision.reason;
  running.end_time = decision.time;
  return running;
}

}  // namespace

void ReleaseHistory::Put(const Release& release) {
  const auto at =
      std::lower_bound(releases_.begin(), releases_.end(), release.number,
                       [](const Release& known, int64_t number) { return known.number < number; });
  if (at != releases_.end() && at->number == release.number) {
    *at = release;
  } else {
    releases_.insert(at, release);
  }
}

const Release* ReleaseHistory::Find(int64_t number) const {
  for (const Release& release : releases_) {
    if (release.number == number) return &release;
  }
  return nullptr;
}

const Release* ReleaseHistory::promoted() const {
  for (auto it = releases_.rbegin(); it != releases_.rend(); ++it) {
    if (it->state == ReleaseState::kPromoted) return &*it;
  }
  return nullptr;
}

const Release* ReleaseHistory::canary() const {
  for (const Release& release : releases_) {
    if (release.state == ReleaseState::kCanary) return &release;
  }
  return nullptr;
}

bool ReleaseHistory::holds_back() const {
  return !releases_.empty() &&
         (releases_.back().state == ReleaseState::kRolledBack || releases_.back().restores != 0);
}

int64_t ReleaseHistory::oldest_kept() const {
  int promoted = 0;
  for (auto it = releases_.rbegin(); it != releases_.rend(); ++it) {
    if (it->state == ReleaseState::kPromoted && ++promoted == kept_) return it->number;
  }
  return 0;
}

const Release& ReleaseHistory::Origin(const Release& release) const {
  const Release* same = &release;
  while (same->restores != 0) {
    const Release* restored = Find(same->restores);
    if (restored == nullptr) break;
    same = restored;
  }
  return *same;
}

int64_t ReleaseHistory::Before(const Release& release) const {
  const int64_t origin = Origin(release).number;
  int64_t before = 0;
  for (const Release& other : releases_) {
    if (other.state == ReleaseState::kPromoted && other.number < origin) {
      before = other.number;
    }
  }
  return before;
}

Release ReleaseHistory::Next(const ReleaseDecision& decision) const {
  Release release;
  release.number = releases_.empty() ? 1 : releases_.back().number + 1;
  release.author = decision.author;
  release.reason = decision.reason;
  release.create_time = decision.time;
  return release;
}

Release ReleaseHistory::First(absl::Time now) const {
  return Next({"convtuned", "first choices", now});
}

absl::StatusOr<Release> ReleaseHistory::Promote(const ReleaseDecision& decision,
                                                int canary_permille, bool has_changes) const {
  if (const Release* running = canary()) {
    if (canary_permille <= 0) return Ended(*running, ReleaseState::kPromoted, decision);
    Release release = *running;
    release.canary_permille = canary_permille;
    return release;
  }
  if (!has_changes) {
    return absl::FailedPreconditionError(
        "there is nothing to promote: every problem is served what is best known");
  }
  Release release = Next(decision);
  release.state = canary_permille > 0 ? ReleaseState::kCanary : ReleaseState::kPromoted;
  release.canary_permille = canary_permille;
  return release;
}

absl::StatusOr<Release> ReleaseHistory::RollBack(const ReleaseDecision& decision,
                                                 int64_t to) const {
  const Release* running = canary();
  if (running != nullptr && to == 0) return Ended(*running, ReleaseState::kRolledBack, decision);
  if (running != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("release: roll the canary ", running->number,
                     " back first (a rollback without a number), or promote it"));
  }
  const Release* now = promoted();
  if (now == nullptr) return absl::FailedPreconditionError("release: there is none yet");
  const int64_t target = to != 0 ? to : Before(*now);
  if (target == 0) {
    const Release& first = Origin(*now);
    return absl::FailedPreconditionError(
        first.number == now->number
            ? absl::StrCat("release: ", now->number, " is the first, there is none before it")
            : absl::StrCat("release: ", now->number, " is as release ", first.number,
                           ", the first: name the number of another"));
  }
  const Release* restored = Find(target);
  if (restored == nullptr) {
    return MissingError({"release", absl::StrCat(target)},
                        absl::StrCat("release: there is no release ", target));
  }
  if (restored->state != ReleaseState::kPromoted) {
    return absl::FailedPreconditionError(
        absl::StrCat("release: ", target, " is a canary that was rolled back"));
  }
  if (target == now->number) {
    return absl::FailedPreconditionError(
        absl::StrCat("release: ", target, " is the promoted one already"));
  }
  if (target < oldest_kept()) {
    return absl::FailedPreconditionError(absl::StrCat("release: the choices of release ", target,
                                                      " are not kept any more; the oldest kept is ",
                                                      oldest_kept()));
  }
  Release release = Next(decision);
  release.restores = target;
  return release;
}

}  // namespace convtune
