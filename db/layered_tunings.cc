#include "db/layered_tunings.h"

#include <map>
#include <optional>

#include "db/bundle/bundle_codec.h"
#include "db/bundle/bundle_merge.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"

namespace convtune::db {
namespace {

// A layer and the tuning that it stands at, without samples.
struct Cursor {
  BundleLayer* layer = nullptr;
  size_t place = 0;
  std::optional<Tuning> tuning;

  // To the next tuning that can be read.
  void Advance(const std::function<void(const std::string&)>& corrupt) {
    TuningRecord record;
    tuning.reset();
    while (true) {
      const absl::StatusOr<bool> found = layer->At(place++, &record);
      if (found.ok() && !*found) return;
      if (found.ok()) break;
      corrupt(std::string(found.status().message()));
    }
    for (Candidate& candidate : record.tuning.candidates) candidate.samples_ns.clear();
    tuning = std::move(record.tuning);
  }
};

StoredTuning Decoded(Tuning tuning) {
  StoredTuning stored{tuning.key, nullptr};
  stored.decode = [tuning = std::move(tuning)] { return tuning; };
  return stored;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BundleLayer>> BundleLayer::Open(Options options) {
  std::unique_ptr<BundleLayer> layer(new BundleLayer(std::move(options)));
  const Options& o = layer->options_;
  ASSIGN_OR_RETURN(std::unique_ptr<bundle::BundleReader> reader,
                   bundle::BundleReader::Open(o.path));
  RETURN_IF_ERROR(
      bundle::ReadWholeBundle(reader.get(), o.trusted, [&](const bundle::BundleEntry& entry) {
        const auto tuning = bundle::FromBundleTuning(*entry.row, *entry.environment, o.now);
        if (!tuning.ok()) {
          o.refused(Concat(o.path, ": ", bundle::RefusalText(entry, tuning.status())));
          return;
        }
        layer->offsets_.push_back(entry.offset);
        layer->by_digest_[tuning->key.Digest()].push_back(entry.offset);
        // In the order of their texts, with the full model of the first place.
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
  auto tuning = bundle::FromBundleTuning(*entry.row, *entry.environment, options_.now);
  if (!tuning.ok()) {
    return absl::DataLossError(Concat(options_.path, ": was changed while it is in use"));
  }
  options_.prepare(&*tuning);
  return TuningRecord{*std::move(tuning), entry.environment->environment};
}

absl::StatusOr<TuningRecord> BundleLayer::Get(const TuningKey& key) {
  if (const auto found = by_digest_.find(key.Digest()); found != by_digest_.end()) {
    for (const int64_t offset : found->second) {
      ASSIGN_OR_RETURN(TuningRecord record, Read(offset));
      if (record.tuning.key == key) return record;
    }
  }
  return absl::NotFoundError(Concat("no tuning of ", key.problem_text, " in ", options_.path));
}

absl::StatusOr<bool> BundleLayer::At(size_t place, TuningRecord* record) {
  if (place >= offsets_.size()) return false;
  ASSIGN_OR_RETURN(*record, Read(offsets_[place]));
  return true;
}

absl::StatusOr<Tuning> LayeredTunings::GetTuning(const TuningKey& key) const {
  absl::StatusOr<Tuning> best = store_->GetTuning(key);
  for (const auto& layer : layers_) {
    absl::StatusOr<TuningRecord> below = layer->Get(key);
    if (!below.ok()) continue;
    if (!best.ok() || Supersedes(below->tuning, *best)) best = std::move(below->tuning);
  }
  return best;
}

absl::Status LayeredTunings::ForEachStored(
    const std::function<bool(StoredTuning)>& visit,
    const std::function<void(const std::string&)>& corrupt) const {
  std::vector<Cursor> cursors;
  for (const auto& layer : layers_) {
    cursors.push_back({layer.get(), 0, std::nullopt});
    cursors.back().Advance(corrupt);
  }
  // Visits what the layers have before `key`, and gives the best of what they
  // have of `key` itself. `more` is false once a visit was the last.
  bool more = true;
  const auto advance_to = [&](const TuningKey* key) {
    while (true) {
      Cursor* first = nullptr;
      for (Cursor& cursor : cursors) {
        if (cursor.tuning.has_value() &&
            (first == nullptr || cursor.tuning->key < first->tuning->key)) {
          first = &cursor;
        }
      }
      if (first == nullptr || !more || (key != nullptr && *key < first->tuning->key)) {
        return std::optional<Tuning>();
      }
      std::optional<Tuning> best = std::move(first->tuning);
      first->Advance(corrupt);
      for (Cursor& cursor : cursors) {
        if (!cursor.tuning.has_value() || !(cursor.tuning->key == best->key)) continue;
        if (Supersedes(*cursor.tuning, *best)) best = std::move(cursor.tuning);
        cursor.Advance(corrupt);
      }
      if (key != nullptr && best->key == *key) return best;
      more = visit(Decoded(*std::move(best)));
    }
  };
  RETURN_IF_ERROR(store_->ForEachStored(
      [&](StoredTuning stored) {
        std::optional<Tuning> below = advance_to(&stored.key);
        if (!more) return false;
        if (below.has_value()) {
          const absl::StatusOr<Tuning> tuning = stored.decode();
          if (!tuning.ok()) corrupt(std::string(tuning.status().message()));
          if (!tuning.ok() || Supersedes(*below, *tuning)) stored = Decoded(*std::move(below));
        }
        more = visit(std::move(stored));
        return more;
      },
      corrupt));
  advance_to(nullptr);
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
