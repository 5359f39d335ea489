// convtune-golden-rows DIRECTORY: makes a database there, with a row or more in
// every table; tests/data/db/write_dump.py makes a golden dump of it.
#include <iostream>

#include "db/store/sqlite_store.h"
#include "proto/base/status_macros.h"
#include "tests/unit/db/sample_releases.h"
#include "tests/unit/db/sample_tunings.h"
#include "tests/unit/db/test_folder.h"

namespace convtune::db::store {
namespace {

absl::Status WriteRows(const std::string& directory) {
  ManualClock clock;
  SqliteStore::Options options;
  options.state_dir = directory;
  options.clock = &clock;
  options.allow_network_fs = true;
  ASSIGN_OR_RETURN(const std::unique_ptr<SqliteStore> store, SqliteStore::Open(std::move(options)));
  const Environment environment = SampleEnvironment();
  RETURN_IF_ERROR(store->PutTuning(SampleTuning(1), environment));
  RETURN_IF_ERROR(store->PutTuning(SampleTuning(2), environment));
  RETURN_IF_ERROR(store->PutTuning(SampleMeasuredTuning(3), environment));
  RETURN_IF_ERROR(store->PutTuning(SampleIncompleteTuning(4), environment));
  RETURN_IF_ERROR(store->PutPin(SamplePin(1)));
  RETURN_IF_ERROR(store->AddBan(SampleBan()).status());
  RETURN_IF_ERROR(store->PutQuarantine(SampleQuarantine()));
  RETURN_IF_ERROR(store->PutQuarantine(SampleHang()));
  RETURN_IF_ERROR(
      store->PutRelease(SampleRelease(1), {SamplePortfolio(1, 5), SamplePortfolio(2, 5)}));
  RETURN_IF_ERROR(store->PutRelease(SampleCanary(2), {SamplePortfolio(1, 9, 2), NoChoice(2, 2)}));
  RETURN_IF_ERROR(store->UpdateWanted({SampleWanted(3)}, {}));
  RETURN_IF_ERROR(store->SetFleetRelease(5));
  return store->Close();
}

}  // namespace
}  // namespace convtune::db::store

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: convtune-golden-rows DIRECTORY\n";
    return 2;
  }
  const absl::Status status = convtune::db::store::WriteRows(argv[1]);
  if (!status.ok()) std::cerr << "convtune-golden-rows: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
