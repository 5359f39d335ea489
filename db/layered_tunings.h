// LayeredTunings are a store and, beneath it, read-only bundles, as a container image brings them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
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

// A BundleLayer is one of the bundles, which is read and never written. Thread-safe. Memory: about
// 60 bytes a tuning; the tunings stay in the file, which is kept open and must not be changed in
// place.
class BundleLayer {
 public:
  // Reads and judges all of it; rows' times are held against `now`. One of the keys `trusted` (32
  // bytes each) must have signed it; empty: any, or none. `refused` is told of each row that breaks
  // a rule and is left out. DATA_LOSS: damaged; PERMISSION_DENIED: its signature.
  static absl::StatusOr<std::unique_ptr<BundleLayer>> Open(
      const std::string& path, const std::vector<std::string>& trusted, absl::Time now,
      const std::function<void(const std::string&)>& refused);

  // Ranked anew, with the samples that the bundle has. NOT_FOUND if it is not there.
  absl::StatusOr<TuningRecord> Get(const TuningKey& key);
  bool Has(const TuningKey& key) const { return by_digest_.contains(key.Digest()); }
  // REQUIRES: place < size(). In the order of (environment text, problem text).
  absl::StatusOr<Tuning> At(size_t place);
  // Environments that its tunings have, in the order of their texts.
  const std::vector<Environment>& environments() const { return environments_; }
  size_t size() const { return offsets_.size(); }

 private:
  BundleLayer(std::string path, absl::Time now) : path_(std::move(path)), now_(now) {}
  absl::StatusOr<TuningRecord> Read(int64_t offset) EXCLUDES(mutex_);

  const std::string path_;
  const absl::Time now_;
  // Not changed after Open.
  std::vector<int64_t> offsets_;
  // By digest alone: were two keys to share one, the second would not be found.
  absl::flat_hash_map<TuningDigest, int64_t> by_digest_;
  std::vector<Environment> environments_;
  Mutex mutex_;
  std::unique_ptr<bundle::BundleReader> reader_ GUARDED_BY(mutex_);
};

// LayeredTunings reads what a store and the layers beneath it hold together: of each key
// the better tuning (Supersedes), wherever it is; the store's between equals. Changes go to
// the store alone, so that a deleted tuning may leave a layer's in its place. Thread-safe.
class LayeredTunings {
 public:
  // Both outlive it.
  // NOLINTNEXTLINE(google-explicit-constructor): a store without layers is what it holds.
  LayeredTunings(TuningStore* store, std::span<const std::unique_ptr<BundleLayer>> layers = {})
      : store_(store), layers_(layers) {}

  TuningStore* store() const { return store_; }
  // As the functions of TuningStore, but in no order.
  absl::StatusOr<Tuning> GetTuning(const TuningKey& key) const;
  absl::Status ForEachStored(const std::function<bool(StoredTuning)>& visit,
                             const std::function<void(const std::string&)>& corrupt) const;
  absl::StatusOr<std::vector<Environment>> ListEnvironments() const;

 private:
  TuningStore* const store_;
  const std::span<const std::unique_ptr<BundleLayer>> layers_;
};

}  // namespace convtune::db
