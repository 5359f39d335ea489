#include "tests/unit/db/delivered_conformance.h"
#include "tests/unit/db/for_each_tuning.h"
#include "tests/unit/db/store/store_fixture.h"

namespace convtune::db::store {
namespace {

struct NodeEngine {
  absl::Status Reopen() {
    store.reset();
    SqliteStore::Options options;
    options.state_dir = state.path();
    options.clock = &clock;
    options.allow_network_fs = true;
    auto opened = SqliteStore::Open(std::move(options));
    if (opened.ok()) store = *std::move(opened);
    return opened.status();
  }
  absl::Status Put(const Tuning& tuning, const Environment& environment) {
    return store->PutTuning(tuning, environment);
  }
  absl::StatusOr<Tuning> Get(const TuningKey& key) { return store->GetTuning(key); }
  absl::Status ForEach(const std::function<void(Tuning)>& visit,
                       const std::function<void(const std::string&)>& corrupt) {
    return ForEachTuning(
        *store,
        [&visit](Tuning tuning) {
          visit(std::move(tuning));
          return true;
        },
        corrupt);
  }
  absl::StatusOr<int64_t> Delete(const std::vector<TuningKey>& keys) {
    return store->DeleteTunings(keys);
  }

  TestFolder state;
  ManualClock clock;
  std::unique_ptr<TuningStore> store;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Sqlite, DeliveredConformance, NodeEngine);

}  // namespace
}  // namespace convtune::db::store
