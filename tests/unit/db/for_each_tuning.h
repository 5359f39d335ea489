// ForEachTuning and AllTunings decode what a store's ForEachStored visits.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/tuning_store.h"

namespace convtune::db {

// A record that cannot be read is passed to `corrupt`, too.
template <typename Store>
absl::Status ForEachTuning(Store&& store, const std::function<void(Tuning)>& visit,
                           const std::function<void(const std::string&)>& corrupt) {
  return store.ForEachStored(
      [&](const StoredTuning& stored) {
        absl::StatusOr<Tuning> tuning = stored.decode();
        if (tuning.ok()) {
          visit(*std::move(tuning));
        } else {
          corrupt(std::string(tuning.status().message()));
        }
        return true;
      },
      corrupt);
}

// All of them, where none is damaged.
template <typename Store>
std::vector<Tuning> AllTunings(Store&& store) {
  std::vector<Tuning> tunings;
  const absl::Status status = ForEachTuning(
      store, [&](Tuning tuning) { tunings.push_back(std::move(tuning)); },
      [](const std::string& text) { ADD_FAILURE() << "corrupt: " << text; });
  EXPECT_TRUE(status.ok()) << status;
  return tunings;
}

}  // namespace convtune::db
