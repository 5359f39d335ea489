// ForEachTuning decodes what a store's ForEachStored visits.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/tuning_store.h"

namespace convtune::db {

// A record that cannot be read is passed to `corrupt`, too.
template <typename Store>
absl::Status ForEachTuning(Store& store, const std::function<bool(Tuning)>& visit,
                           const std::function<void(const std::string&)>& corrupt) {
  return store.ForEachStored(
      [&](const StoredTuning& stored) {
        absl::StatusOr<Tuning> tuning = stored.decode();
        if (tuning.ok()) return visit(*std::move(tuning));
        corrupt(std::string(tuning.status().message()));
        return true;
      },
      corrupt);
}

}  // namespace convtune::db
