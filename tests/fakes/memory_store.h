// A TuningStore that forgets at exit and fails on demand.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "db/tuning_store.h"
#include "proto/base/mutex.h"

namespace convtune {

// Thread-safe. Tunings that ForEachStored visits have no samples, as in the real one.
class MemoryStore : public db::TuningStore {
 public:
  // Every other mutation returns `status` from now on; OK ends that.
  void FailWith(absl::Status status) {
    MutexLock lock(mutex_);
    failure_ = std::move(status);
  }
  // The problem whose tuning WaitsForFleet() is true for; not to be changed while others read it.
  std::string waits_for_fleet;
  int put_count() const {
    MutexLock lock(mutex_);
    return put_count_;
  }

  absl::Status PutTuning(const Tuning& tuning, const Environment& environment) override {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
    ++put_count_;
    tunings_[tuning.key] = tuning;
    environments_[environment.ToText()] = environment;
    return absl::OkStatus();
  }
  absl::Status PutTunings(const db::TuningSource& next) override {
    std::vector<db::TuningRecord> records;
    while (true) {
      auto record = next();
      if (!record.ok()) return record.status();
      if (!record->has_value()) break;
      records.push_back(**std::move(record));
    }
    for (const db::TuningRecord& record : records) {
      const absl::Status status = PutTuning(record.tuning, record.environment);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  absl::StatusOr<Tuning> GetTuning(const TuningKey& key) override {
    MutexLock lock(mutex_);
    const auto found = tunings_.find(key);
    if (found == tunings_.end()) return absl::NotFoundError("no such tuning");
    return found->second;
  }
  absl::StatusOr<int64_t> DeleteTunings(const std::vector<TuningKey>& keys) override {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
    int64_t count = 0;
    for (const TuningKey& key : keys) count += static_cast<int64_t>(tunings_.erase(key));
    return count;
  }
  absl::Status ForEachStored(const std::function<bool(db::StoredTuning)>& visit,
                             const std::function<void(const std::string&)>&) override {
    std::map<TuningKey, Tuning> tunings;
    {
      MutexLock lock(mutex_);
      tunings = tunings_;
    }
    for (auto& [key, tuning] : tunings) {
      for (Candidate& candidate : tuning.candidates) candidate.samples_ns.clear();
      if (!visit({tuning.key, [visited = tuning] { return visited; }})) break;
    }
    return absl::OkStatus();
  }
  absl::StatusOr<bool> WaitsForFleet(const TuningKey& key) override {
    return key.problem_text == waits_for_fleet;
  }
  absl::StatusOr<std::vector<Environment>> ListEnvironments() override {
    MutexLock lock(mutex_);
    return Values(environments_);
  }

  absl::Status PutPin(const Pin& pin) override {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
    pins_[pin.key] = pin;
    return absl::OkStatus();
  }
  absl::Status DeletePin(const TuningKey& key) override {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
    if (pins_.erase(key) == 0) return absl::NotFoundError("no such pin");
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<Pin>> ListPins() override {
    MutexLock lock(mutex_);
    return Values(pins_);
  }

  absl::StatusOr<int64_t> AddBan(const Ban& ban) override {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
    bans_[++last_ban_] = ban;
    bans_[last_ban_].number = last_ban_;
    return last_ban_;
  }
  absl::Status DeleteBan(int64_t number) override {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
    if (bans_.erase(number) == 0) return absl::NotFoundError("no such ban");
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<Ban>> ListBans() override {
    MutexLock lock(mutex_);
    return Values(bans_);
  }

  absl::Status PutQuarantine(const QuarantineEntry& entry) override {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
    std::erase_if(quarantine_, [&entry](const QuarantineEntry& e) {
      return e.key == entry.key && e.candidate == entry.candidate;
    });
    quarantine_.push_back(entry);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<QuarantineEntry>> ListQuarantine() override {
    MutexLock lock(mutex_);
    return quarantine_;
  }
  absl::Status DeleteQuarantine(const TuningKey& key,
                                const std::vector<CandidateId>& candidates) override {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
    std::erase_if(quarantine_, [&](const QuarantineEntry& e) {
      return e.key == key &&
             std::find(candidates.begin(), candidates.end(), e.candidate) != candidates.end();
    });
    return absl::OkStatus();
  }

  absl::StatusOr<v1::CheckDatabaseResponse> Check() override { return v1::CheckDatabaseResponse(); }
  absl::StatusOr<int64_t> Backup(const std::string&, const std::function<bool()>&) override {
    return absl::UnimplementedError("there is no file");
  }
  absl::StatusOr<v1::CompactDatabaseResponse> Compact() override {
    return v1::CompactDatabaseResponse();
  }
  bool InPlace() const override { return true; }
  int64_t SizeBytes() override { return 0; }
  int SchemaVersion() override { return 0; }

  // Every mutation of releases and missed problems returns `status` from now on; OK ends that.
  void FailReleasesWith(absl::Status status) {
    MutexLock lock(mutex_);
    release_failure_ = std::move(status);
  }
  // Once another release is written, ForEachPortfolio returns `status`; OK ends that.
  void FailReadsAfterAWriteWith(absl::Status status) {
    MutexLock lock(mutex_);
    read_failure_ = absl::OkStatus();
    next_read_failure_ = std::move(status);
  }

  absl::StatusOr<std::vector<Release>> ListReleases() override {
    MutexLock lock(mutex_);
    return Values(releases_);
  }
  absl::Status PutRelease(const Release& release,
                          const std::vector<Portfolio>& portfolios) override {
    MutexLock lock(mutex_);
    if (!release_failure_.ok()) return release_failure_;
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
    if (!release_failure_.ok()) return release_failure_;
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
    if (!release_failure_.ok()) return release_failure_;
    carry_over_ = carry_over;
    return absl::OkStatus();
  }
  absl::Status UpdateWanted(const std::vector<WantedProblem>& put,
                            const std::vector<TuningKey>& drop) override {
    MutexLock lock(mutex_);
    if (!release_failure_.ok()) return release_failure_;
    for (const WantedProblem& w : put) wanted_[w.key] = w;
    for (const TuningKey& key : drop) wanted_.erase(key);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<WantedProblem>> ListWanted() override {
    MutexLock lock(mutex_);
    return Values(wanted_);
  }

 private:
  template <typename K, typename V>
  static std::vector<V> Values(const std::map<K, V>& map) {
    std::vector<V> values;
    for (const auto& [key, value] : map) values.push_back(value);
    return values;
  }
  using Versions = std::map<int64_t, Portfolio>;  // by release
  static const Portfolio* Effective(const Versions& versions, int64_t release) {
    auto after = versions.upper_bound(release);
    return after == versions.begin() ? nullptr : &(--after)->second;
  }

  mutable Mutex mutex_;
  absl::Status failure_ GUARDED_BY(mutex_);
  int put_count_ GUARDED_BY(mutex_) = 0;
  std::map<TuningKey, Tuning> tunings_ GUARDED_BY(mutex_);
  std::map<std::string, Environment> environments_ GUARDED_BY(mutex_);
  std::map<TuningKey, Pin> pins_ GUARDED_BY(mutex_);
  int64_t last_ban_ GUARDED_BY(mutex_) = 0;
  std::map<int64_t, Ban> bans_ GUARDED_BY(mutex_);
  std::vector<QuarantineEntry> quarantine_ GUARDED_BY(mutex_);
  absl::Status release_failure_ GUARDED_BY(mutex_);
  absl::Status read_failure_ GUARDED_BY(mutex_);
  absl::Status next_read_failure_ GUARDED_BY(mutex_);
  bool carry_over_ GUARDED_BY(mutex_) = true;
  std::map<int64_t, Release> releases_ GUARDED_BY(mutex_);
  std::map<TuningKey, Versions> portfolios_ GUARDED_BY(mutex_);
  std::map<TuningKey, WantedProblem> wanted_ GUARDED_BY(mutex_);
};

}  // namespace convtune
