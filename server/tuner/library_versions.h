// Whether a measurement still holds for the CUDA libraries that there are.
#pragma once

#include <map>
#include <string>

#include "db/tuning_store.h"

namespace convtune {

// Of the libraries that cuDNN loads by itself; empty: not known. What identifies
// a library is its build, which is never the same for two versions.
struct LibraryVersions {
  std::string cublaslt;
  std::string nvrtc;
  friend bool operator==(const LibraryVersions&, const LibraryVersions&) = default;
};

// Empty if all that `tuning` says holds for `now`; else why not. A candidate
// that ran and whose notes say that it is compiled at run time holds for one
// NVRTC, one that uses cuBLASLt for one cuBLASLt. What was not known of then is
// another, what is not known of now counts as the same. Of OBSERVED tunings
// nothing is claimed that could end.
std::string WhyOutdated(const Tuning& tuning, const LibraryVersions& now);

// A tuning that does not hold any more is no evidence of anything: it is kept,
// as a hint, and any tuning is served in its place. On disk only what was
// measured takes the place of what was.
void MarkOutdated(const std::string& why, Tuning* tuning);
// True if it is marked and was measured, in part at least.
bool WasMeasuredAndIsOutdated(const Tuning& tuning);

// A store whose tunings are marked as they are read, where they do not hold for
// the devices that there are; the mark is never written. Thread-safe as the
// store beneath, but nobody else may write a tuning that is marked meanwhile.
class HoldingStore : public TuningStore {
 public:
  // `now`: of the environments (by text) that a device has. `store` outlives it.
  HoldingStore(TuningStore* store, std::map<std::string, LibraryVersions> now)
      : store_(store), now_(std::move(now)) {}

  const std::map<std::string, LibraryVersions>& now() const { return now_; }
  // Empty where it holds, or where no device has its environment.
  std::string WhyOutdated(const Tuning& tuning) const;

  // One that is marked keeps the evidence that it has on disk.
  absl::Status PutTuning(const Tuning& tuning, const Environment& environment) override;
  absl::Status PutTunings(const TuningSource& next) override { return store_->PutTunings(next); }
  absl::StatusOr<Tuning> GetTuning(const TuningKey& key) override;
  absl::StatusOr<int64_t> DeleteTunings(const std::vector<TuningKey>& keys) override {
    return store_->DeleteTunings(keys);
  }
  absl::Status ForEachTuning(const std::function<bool(Tuning)>& visit,
                             const std::function<void(const std::string&)>& corrupt) override;
  absl::StatusOr<std::vector<Environment>> ListEnvironments() override {
    return store_->ListEnvironments();
  }
  absl::Status PutPin(const Pin& pin) override { return store_->PutPin(pin); }
  absl::Status DeletePin(const TuningKey& key) override { return store_->DeletePin(key); }
  absl::StatusOr<std::vector<Pin>> ListPins() override { return store_->ListPins(); }
  absl::Status PutQuarantine(const QuarantineEntry& entry) override {
    return store_->PutQuarantine(entry);
  }
  absl::StatusOr<std::vector<QuarantineEntry>> ListQuarantine() override {
    return store_->ListQuarantine();
  }
  absl::Status DeleteQuarantine(const TuningKey& key,
                                const std::vector<CandidateId>& candidates) override {
    return store_->DeleteQuarantine(key, candidates);
  }
  absl::StatusOr<StoreCheck> Check() override { return store_->Check(); }
  absl::StatusOr<int64_t> Backup(const std::string& path) override { return store_->Backup(path); }
  absl::StatusOr<StoreCompaction> Compact() override { return store_->Compact(); }
  int64_t SizeBytes() override { return store_->SizeBytes(); }
  int SchemaVersion() override { return store_->SchemaVersion(); }

 private:
  void Mark(Tuning* tuning) const;

  TuningStore* const store_;
  const std::map<std::string, LibraryVersions> now_;
};

}  // namespace convtune
