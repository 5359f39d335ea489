// A TuningStore keeps tunings, pins, bans and quarantines, releases and missed problems. An
// interface, so that engines can be exchanged and failures injected.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "convtune/v1/maintenance_service.pb.h"
#include "proto/model/release/release.h"
#include "proto/model/tuning/ban.h"
#include "proto/model/tuning/tuning.h"

namespace convtune::db {

// A tuning with its key's environment, with the full GPU model.
struct TuningRecord {
  Tuning tuning;
  Environment environment;
};

// A StoredTuning is a tuning as it was read, for whoever decodes several at a time.
struct StoredTuning {
  TuningKey key;
  // Gives the tuning without samples. May be called on any thread. DATA_LOSS names the row
  // whose record means nothing to this program.
  std::function<absl::StatusOr<Tuning>()> decode;
};

// Gives one after the other, then nothing; an error ends it.
using TuningSource = std::function<absl::StatusOr<std::optional<TuningRecord>>()>;

// Thread-safe. A mutation that returned OK survives kill -9 and power loss;
// one that did not return OK left nothing behind. UNAVAILABLE or
// RESOURCE_EXHAUSTED: the disk refused, trying again may succeed.
class TuningStore {
 public:
  virtual ~TuningStore() = default;

  // Writes the tuning, replacing what the key had. Environment rows are made
  // as needed. `environment` is the key's, with the full GPU model; INVALID_ARGUMENT if it is not.
  // Numbers are not judged: who measures, reads a bundle or a datagram has done so.
  virtual absl::Status PutTuning(const Tuning& tuning, const Environment& environment) = 0;
  // Writes all that `next` gives until it gives nothing, in one transaction; an
  // error of `next` leaves nothing behind, either. `next` may read the store,
  // which is then as it was before, and must not change it.
  virtual absl::Status PutTunings(const TuningSource& next) = 0;
  // NOT_FOUND if there is none. With samples.
  virtual absl::StatusOr<Tuning> GetTuning(const TuningKey& key) = 0;
  // Returns how many of the keys were there. Without keys it writes nothing, and gives the
  // error that a deletion would give.
  virtual absl::StatusOr<int64_t> DeleteTunings(const std::vector<TuningKey>& keys) = 0;
  // Calls `visit` for every tuning in the order of (environment text, problem
  // text). A row whose checksum does not match is passed to `corrupt` as text and
  // left out. Ends early, with OK, once `visit` returns false. What it visits is
  // the store as it was at the call; others may read and change the store
  // meanwhile, the callbacks must not.
  virtual absl::Status ForEachStored(const std::function<bool(StoredTuning)>& visit,
                                     const std::function<void(const std::string&)>& corrupt) = 0;
  // True if the key's tuning waits to be delivered to the fleet.
  virtual absl::StatusOr<bool> WaitsForFleet(const TuningKey& key) = 0;
  // Every environment that has rows.
  virtual absl::StatusOr<std::vector<Environment>> ListEnvironments() = 0;

  // One pin per key; replaces.
  virtual absl::Status PutPin(const Pin& pin) = 0;
  // NOT_FOUND if there is none.
  virtual absl::Status DeletePin(const TuningKey& key) = 0;
  virtual absl::StatusOr<std::vector<Pin>> ListPins() = 0;

  // Returns the number that the ban has from now on; `ban.number` is not read.
  virtual absl::StatusOr<int64_t> AddBan(const Ban& ban) = 0;
  // NOT_FOUND if there is none.
  virtual absl::Status DeleteBan(int64_t number) = 0;
  // By ascending number, the expired ones too.
  virtual absl::StatusOr<std::vector<Ban>> ListBans() = 0;

  // Replaces an entry of the same key and candidate.
  virtual absl::Status PutQuarantine(const QuarantineEntry& entry) = 0;
  virtual absl::StatusOr<std::vector<QuarantineEntry>> ListQuarantine() = 0;
  // Lifts the entries of these candidates, all or none; those that have none are
  // no error.
  virtual absl::Status DeleteQuarantine(const TuningKey& key,
                                        const std::vector<CandidateId>& candidates) = 0;

  // In order of number.
  virtual absl::StatusOr<std::vector<Release>> ListReleases() = 0;
  // Writes the release, replacing one of the same number, and these portfolios
  // of it, whatever their `release` says, replacing what it had for the same
  // problems. One that is rolled back loses every portfolio that it had.
  virtual absl::Status PutRelease(const Release& release,
                                  const std::vector<Portfolio>& portfolios) = 0;

  // The portfolio that a problem has in `release`: its own or, where it has
  // none, that of the nearest release before it. NOT_FOUND without any; a
  // portfolio without choices where the problem has none any more.
  virtual absl::StatusOr<Portfolio> GetPortfolio(const TuningKey& key, int64_t release) = 0;
  // Every problem's, in the order of (environment text, problem text). Empty
  // `environment_text`: all. A damaged one is passed to `corrupt` as text and
  // left out. The callbacks must not call the store.
  virtual absl::Status ForEachPortfolio(const std::string& environment_text, int64_t release,
                                        const std::function<void(Portfolio)>& visit,
                                        const std::function<void(const std::string&)>& corrupt) = 0;
  // Drops the portfolios that no release from `oldest` on has any more. Returns
  // their rows.
  virtual absl::StatusOr<int64_t> ThinPortfolios(int64_t oldest) = 0;

  // Looks at the pages of every table that what is served rests on, where damage
  // may hide rows without an error. DATA_LOSS names the first finding; the next
  // start then checks the whole file.
  virtual absl::Status CheckServed() = 0;
  // True while the store may lack choices that the last snapshot has: from its
  // first use, and from SetCarryOver(true), until SetCarryOver(false).
  virtual absl::StatusOr<bool> CarriesOver() = 0;
  virtual absl::Status SetCarryOver(bool carry_over) = 0;

  // Writes the first list, replacing entries of the same key, and drops the
  // second.
  virtual absl::Status UpdateWanted(const std::vector<WantedProblem>& put,
                                    const std::vector<TuningKey>& drop) = 0;
  // Ordered by (environment text, problem text).
  virtual absl::StatusOr<std::vector<WantedProblem>> ListWanted() = 0;

  // The next three are maintenance; the store serves meanwhile.

  // Checks everything that is stored. Does not set the response's `elapsed`.
  virtual absl::StatusOr<v1::CheckDatabaseResponse> Check() = 0;
  // Writes a copy to `path`, in a folder that exists, and returns its size in bytes.
  // ALREADY_EXISTS: there is such a file. DATA_LOSS: what is stored is damaged, and so not copied.
  // CANCELLED: `stopped` became true, and there is no copy.
  virtual absl::StatusOr<int64_t> Backup(const std::string& path,
                                         const std::function<bool()>& stopped) = 0;
  virtual absl::StatusOr<v1::CompactDatabaseResponse> Compact() = 0;
  // False once somebody moved or deleted the file, or put another in its place: what is
  // written then is lost at the end. On any thread; waits for nothing.
  virtual bool InPlace() const = 0;
  // Bytes of the file and its write-ahead log.
  virtual int64_t SizeBytes() = 0;
  virtual int SchemaVersion() = 0;
  // Absolute paths, in order, of damaged files that were put aside, and of their logs.
  virtual std::vector<std::string> ListPutAside() const { return {}; }
};

}  // namespace convtune::db
