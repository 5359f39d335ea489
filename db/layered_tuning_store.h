// Read-only bundles beneath a store, as an image brings them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "db/bundle/bundle_reader.h"
#include "db/tuning_store.h"
#include "proto/base/mutex.h"

namespace convtune::db {

// One bundle that is read and never written. Thread-safe. Memory: about 60
// bytes a tuning; the tunings stay in the file, which is kept open and must not
// be changed in place.
class BundleLayer {
 public:
  struct Options {
    std::string path;
    // Keys (32 bytes each), one of which must have signed it; empty: any.
    std::vector<std::string> trusted;
    absl::Time now;  // what the rows' times are held against
    // Told of each row that breaks a rule and is left out.
    std::function<void(const std::string&)> refused = [](const std::string&) {};
  };

  // Reads and judges all of it. DATA_LOSS: damaged; PERMISSION_DENIED: its
  // signature.
  static absl::StatusOr<std::unique_ptr<BundleLayer>> Open(Options options);

  // With the samples that the bundle has. NOT_FOUND if it is not there.
  absl::StatusOr<TuningRecord> Get(const TuningKey& key);
  // The place-th tuning in the order of (environment text, problem text); false
  // behind the last.
  absl::StatusOr<bool> At(size_t place, TuningRecord* record);
  // Those that its tunings have.
  const std::vector<Environment>& environments() const { return environments_; }
  size_t size() const { return offsets_.size(); }

 private:
  explicit BundleLayer(Options options) : options_(std::move(options)) {}
  absl::StatusOr<TuningRecord> Read(int64_t offset) EXCLUDES(mutex_);

  const Options options_;
  // Not changed after Open.
  std::vector<int64_t> offsets_;
  absl::flat_hash_map<TuningDigest, std::vector<int64_t>> by_digest_;
  std::vector<Environment> environments_;
  Mutex mutex_;
  std::unique_ptr<BundleReader> reader_ GUARDED_BY(mutex_);
};

// What a store and the layers beneath it hold together: of each key the better
// tuning (Supersedes), wherever it is; the store's between equals. Changes
// go to the store, so that a deleted tuning may leave a layer's in its place.
// Thread-safe.
class LayeredTuningStore : public TuningStore {
 public:
  // `store` outlives it. `prepare` is applied to each tuning of a layer, for
  // example to rank its candidates.
  LayeredTuningStore(TuningStore* store, std::vector<std::unique_ptr<BundleLayer>> layers,
                     std::function<void(Tuning*)> prepare);

  absl::Status PutTuning(const Tuning& tuning, const Environment& environment) override;
  absl::Status PutTunings(const TuningSource& next) override;
  absl::StatusOr<Tuning> GetTuning(const TuningKey& key) override;
  absl::StatusOr<int64_t> DeleteTunings(const std::vector<TuningKey>& keys) override;
  absl::Status ForEachTuning(const std::function<bool(Tuning)>& visit,
                             const std::function<void(const std::string&)>& corrupt) override;
  absl::StatusOr<std::vector<Environment>> ListEnvironments() override;
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
  TuningStore* const store_;
  const std::vector<std::unique_ptr<BundleLayer>> layers_;
  const std::function<void(Tuning*)> prepare_;
};

}  // namespace convtune::db
