#include "db/layered_tunings.h"

#include <algorithm>
#include <map>

#include "absl/container/flat_hash_set.h"
#include "db/bundle/bundle_codec.h"
#include "db/bundle/bundle_merge.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/model/tuning/ranking.h"

namespace convtune::db {
namespace {

// Puts what a layer has of the key in place of what is worse or not there.
void TakeBetter(std::span<const std::unique_ptr<BundleLayer>> layers, const TuningKey& key,
                absl::StatusOr<Tuning>* best) {
  for (const auto& layer : layers) {
    absl::StatusOr<TuningRecord> below = layer->Get(key);
    if (!below.ok()) continue;
    if (!best->ok() || Supersedes(below->tuning, **best)) *best = std::move(below->tuning);
  }
}

StoredTuning Decoded(Tuning tuning) {
  for (Candidate& candidate : tuning.candidates) candidate.samples_ns.clear();
  StoredTuning stored{tuning.key, nullptr};
  stored.decode = [tuning = std::move(tuning)] { return tuning; };
  return stored;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BundleLayer>> BundleLayer::Open(
    const std::string& path, const std::vector<std::string>& trusted, absl::Time now,
    const std::function<void(const std::string&)>& refused) {
  std::unique_ptr<BundleLayer> layer(new BundleLayer(path, now));
  ASSIGN_OR_RETURN(std::unique_ptr<bundle::BundleReader> reader, bundle::BundleReader::Open(path));
  RETURN_IF_ERROR(
      bundle::ReadWholeBundle(reader.get(), trusted, [&](const bundle::BundleEntry& entry) {
        const auto tuning = bundle::FromBundleTuning(*entry.row, *entry.environment, now);
        if (!tuning.ok()) {
          refused(Concat(path, ": ", bundle::RefusalText(entry, tuning.status())));
          return;
        }
        layer->offsets_.push_back(entry.offset);
        layer->by_digest_.try_emplace(tuning->key.Digest(), entry.offset);
        // Tunings come in the order of their environments' texts. The full model of a GPU is that
        // of its first tuning.
        if (layer->environments_.empty() ||
            layer->environments_.back().ToText() != entry.environment->text) {
          layer->environments_.push_back(entry.environment->environment);
        }
      }));
  MutexLock lock(layer->mutex_);
  layer->reader_ = std::move(reader);
  return layer;
}

absl::StatusOr<TuningRecord> BundleLayer::Read(int64_t offset) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(const bundle::BundleEntry entry, reader_->ReadAt(offset));
  auto tuning = bundle::FromBundleTuning(*entry.row, *entry.environment, now_);
  if (!tuning.ok()) {
    return absl::DataLossError(Concat(path_, ": was changed while it is in use"));
  }
  RankCandidates(&tuning->candidates);
  return TuningRecord{*std::move(tuning), entry.environment->environment};
}

absl::StatusOr<TuningRecord> BundleLayer::Get(const TuningKey& key) {
  if (const auto found = by_digest_.find(key.Digest()); found != by_digest_.end()) {
    ASSIGN_OR_RETURN(TuningRecord record, Read(found->second));
    if (record.tuning.key == key) return record;
  }
  return absl::NotFoundError(Concat("no tuning of ", key.problem_text, " in ", path_));
}

absl::StatusOr<Tuning> BundleLayer::At(size_t place) {
  ASSIGN_OR_RETURN(TuningRecord record, Read(offsets_[place]));
  return std::move(record.tuning);
}

absl::StatusOr<Tuning> LayeredTunings::GetTuning(const TuningKey& key) const {
  absl::StatusOr<Tuning> best = store_->GetTuning(key);
  TakeBetter(layers_, key, &best);
  return best;
}

absl::Status LayeredTunings::ForEachStored(
    const std::function<bool(StoredTuning)>& visit,
    const std::function<void(const std::string&)>& corrupt) const {
  absl::flat_hash_set<TuningDigest> visited;  // of keys that a layer has
  bool more = true;
  RETURN_IF_ERROR(store_->ForEachStored(
      [&](StoredTuning stored) {
        const auto has = [&stored](const auto& layer) { return layer->Has(stored.key); };
        if (std::any_of(layers_.begin(), layers_.end(), has)) {
          visited.insert(stored.key.Digest());
          absl::StatusOr<Tuning> best = stored.decode();
          if (!best.ok()) corrupt(std::string(best.status().message()));
          TakeBetter(layers_, stored.key, &best);
          if (best.ok()) stored = Decoded(*std::move(best));
        }
        more = visit(std::move(stored));
        return more;
      },
      corrupt));
  for (size_t i = 0; i < layers_.size(); ++i) {
    for (size_t place = 0; more && place < layers_[i]->size(); ++place) {
      absl::StatusOr<Tuning> best = layers_[i]->At(place);
      if (!best.ok()) {
        corrupt(std::string(best.status().message()));
      } else if (const TuningKey key = best->key; visited.insert(key.Digest()).second) {
        TakeBetter(layers_.subspan(i + 1), key, &best);
        more = visit(Decoded(*std::move(best)));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Environment>> LayeredTunings::ListEnvironments() const {
  std::map<std::string, Environment> by_text;
  ASSIGN_OR_RETURN(const std::vector<Environment> stored, store_->ListEnvironments());
  for (const Environment& environment : stored) by_text.emplace(environment.ToText(), environment);
  for (const auto& layer : layers_) {
    for (const Environment& environment : layer->environments()) {
      by_text.emplace(environment.ToText(), environment);
    }
  }
  std::vector<Environment> environments;
  for (auto& [text, environment] : by_text) environments.push_back(std::move(environment));
  return environments;
}

}  // namespace convtune::db
