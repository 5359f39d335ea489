// The part of a MemoryStore that keeps releases and missed problems.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "db/tuning_store.h"
#include "proto/base/mutex.h"

namespace convtune {

// Thread-safe.
class MemoryReleaseStore : public db::TuningStore {
 public:
  // Every mutation of releases and missed problems returns `status` from now on; OK ends that.
  void FailReleasesWith(absl::Status status) {
    MutexLock lock(mutex_);
    failure_ = std::move(status);
  }
  // Once another release is written, ForEachPortfolio returns `status`; OK ends that.
  void FailReadsAfterAWriteWith(absl::Status status) {
    MutexLock lock(mutex_);
    read_failure_ = absl::OkStatus();
    next_read_failure_ = std::move(status);
  }

  absl::StatusOr<std::vector<Release>> ListReleases() override {
    MutexLock lock(mutex_);
    std::vector<Release> releases;
    for (const auto& [number, release] : releases_) releases.push_back(release);
    return releases;
  }
  absl::Status PutRelease(const Release& release,
                          const std::vector<Portfolio>& portfolios) override {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
    read_failure_ = next_read_failure_;
    releases_[release.number] = release;
    if (release.state == ReleaseState::kRolledBack) {
      for (auto& [key, versions] : portfolios_) versions.erase(release.number);
    }
    for (Portfolio p : portfolios) {
      p.release = release.number;
      portfolios_[p.key][release.number] = p;
    }
    return absl::OkStatus();
  }
  absl::StatusOr<Portfolio> GetPortfolio(const TuningKey& key, int64_t release) override {
    MutexLock lock(mutex_);
    const auto found = portfolios_.find(key);
    if (found != portfolios_.end()) {
      if (const Portfolio* p = Effective(found->second, release)) return *p;
    }
    return absl::NotFoundError("no choice");
  }
  absl::Status ForEachPortfolio(const std::string& environment_text, int64_t release,
                                const std::function<void(Portfolio)>& visit,
                                const std::function<void(const std::string&)>&) override {
    std::vector<Portfolio> found;
    {
      MutexLock lock(mutex_);
      if (!read_failure_.ok()) return read_failure_;
      for (const auto& [key, versions] : portfolios_) {
        if (!environment_text.empty() && key.environment_text != environment_text) continue;
        if (const Portfolio* p = Effective(versions, release)) found.push_back(*p);
      }
    }
    for (Portfolio& p : found) visit(std::move(p));
    return absl::OkStatus();
  }
  absl::StatusOr<int64_t> ThinPortfolios(int64_t oldest) override {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
    int64_t rows = 0;
    for (auto& [key, versions] : portfolios_) {
      auto keep = versions.upper_bound(oldest);
      if (keep == versions.begin()) continue;
      --keep;
      while (versions.begin() != keep) {
        rows += std::max<int64_t>(1, std::ssize(versions.begin()->second.choices));
        versions.erase(versions.begin());
      }
    }
    return rows;
  }
  absl::Status CheckServed() override { return absl::OkStatus(); }
  absl::StatusOr<bool> CarriesOver() override {
    MutexLock lock(mutex_);
    return carry_over_;
  }
  absl::Status SetCarryOver(bool carry_over) override {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
    carry_over_ = carry_over;
    return absl::OkStatus();
  }
  absl::Status UpdateWanted(const std::vector<WantedProblem>& put,
                            const std::vector<TuningKey>& drop) override {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
    for (const WantedProblem& w : put) wanted_[w.key] = w;
    for (const TuningKey& key : drop) wanted_.erase(key);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<WantedProblem>> ListWanted() override {
    MutexLock lock(mutex_);
    std::vector<WantedProblem> wanted;
    for (const auto& [key, w] : wanted_) wanted.push_back(w);
    return wanted;
  }

 private:
  using Versions = std::map<int64_t, Portfolio>;  // by release
  static const Portfolio* Effective(const Versions& versions, int64_t release) {
    auto after = versions.upper_bound(release);
    return after == versions.begin() ? nullptr : &(--after)->second;
  }

  Mutex mutex_;
  absl::Status failure_ GUARDED_BY(mutex_);
  absl::Status read_failure_ GUARDED_BY(mutex_);
  absl::Status next_read_failure_ GUARDED_BY(mutex_);
  bool carry_over_ GUARDED_BY(mutex_) = true;
  std::map<int64_t, Release> releases_ GUARDED_BY(mutex_);
  std::map<TuningKey, Versions> portfolios_ GUARDED_BY(mutex_);
  std::map<TuningKey, WantedProblem> wanted_ GUARDED_BY(mutex_);
};

}  // namespace convtune
