// The Tuner is the heart of the daemon: look-ups, the queue of tunings, jobs, devices. It
// knows no gRPC; server/rpc is a thin layer over it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "convtune/v1/bundle_service.pb.h"
#include "convtune/v1/fleet_service.pb.h"
#include "convtune/v1/maintenance_service.pb.h"
#include "convtune/v1/tuning.pb.h"
#include "convtune/v1/tuning_service.pb.h"
#include "db/layered_tunings.h"
#include "proto/base/clock.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/ban.h"
#include "proto/model/tuning/tuning.h"
#include "server/devices/device.h"
#include "server/devices/gpu_health.h"
#include "server/jobs/job_table.h"
#include "server/lookup/lookups.h"
#include "server/lookup/tuning_index.h"
#include "server/release/publisher.h"

namespace convtune::tuner {

struct TunerStats {
  // As far as the tuner knows: from tuning_count to waiting_callers, without database_bytes.
  v1::ServerInfo info;
  std::array<int64_t, lookup::kMissReasons> misses{};  // of look-ups as they came in, by MissReason
  int64_t quarantined = 0;                             // candidates that are not tried again
  std::vector<devices::WorkStats> work;
};

// Thread-safe. Callbacks are called from the calling thread or from one of the tuner's own,
// without locks held; they must not block.
class Tuner {
 public:
  struct Options : devices::WorkerLimits {
    db::TuningStore* store = nullptr;  // outlives the tuner
    std::span<const std::unique_ptr<db::BundleLayer>>
        bases;                     // beneath the store; outlive the tuner
    const Clock* clock = nullptr;  // outlives the tuner
    std::vector<devices::DeviceSpec> devices;
    // The health of the GPUs. A device whose GPU is lost gets no work, and its worker is
    // ended. A device whose GPU has reported an application's Xid gets a new worker for
    // its next work. Outlives the tuner; nullptr: all GPUs are taken for healthy.
    devices::GpuHealth* gpu_health = nullptr;
    std::vector<Ban> shipped_bans;    // hold beside those of the store
    release::PublishOptions publish;  // without a folder nothing is published
    // File that keeps what self-checks of workers came to; empty: it is forgotten
    // at the end.
    std::string self_checks_path;
  };

  // Begins to read the index from the store; rows that fail their checksum are
  // logged and left out. FAILED_PRECONDITION if two devices' environments
  // share a name but differ.
  static absl::StatusOr<std::unique_ptr<Tuner>> Create(Options options);
  virtual ~Tuner() = default;

  // Answers every problem, once; see BatchGet. The callback is called before
  // Lookup returns if nobody needs to wait. Returns a token for EndLookup.
  // Errors: NOT_FOUND (environment), INVALID_ARGUMENT (environment left out
  // where there are several), UNAVAILABLE (draining), FAILED_PRECONDITION (no
  // environment at all).
  virtual uint64_t Lookup(lookup::LookupRequest request, lookup::LookupCallback done) = 0;
  // The caller went away: calls back with CANCELLED if it still waits, and
  // drops queued work that nobody else wants. Unknown tokens are ignored.
  //
  // `keep_work`: the caller's time is up. The work stays queued behind
  // all callers' work, as the job of abandoned look-ups, which can be seen and
  // cancelled like any other. Of one environment at most JobTable::kMaxAbandoned
  // problems stay; those that are not begun within ten minutes are dropped.
  virtual void EndLookup(uint64_t token, bool keep_work) = 0;
  // Counts problems whose answers were given again without Lookup.
  virtual void CountHits(int64_t) {}
  // Changes whenever ListEnvironments or ResolveEnvironment may say something
  // else than before.
  virtual uint64_t EnvironmentsVersion() const { return 0; }

  // See Lookups::CreateJob. Errors: those of Lookup; FAILED_PRECONDITION: no device has the
  // environment; RESOURCE_EXHAUSTED: the queue is full.
  virtual absl::StatusOr<v1::TuningJob> CreateJob(const jobs::JobRequest& request) = 0;
  jobs::JobTable& jobs() { return jobs_; }

  // `environment` as in LookupRequest. NOT_FOUND if nothing is known.
  virtual absl::StatusOr<Tuning> GetTuning(const std::string& environment,
                                           const ConvProblem& problem) = 0;
  // Candidates of the problem that are quarantined here.
  virtual std::map<CandidateId, QuarantineEntry> QuarantineOf(const TuningKey& key) = 0;
  // See TuningIndex::List. UNAVAILABLE while the database is being read.
  virtual absl::StatusOr<lookup::TuningPage> ListTunings(const std::string& environment,
                                                         int page_size, const TuningKey& after,
                                                         const std::string& text_filter) = 0;
  // Also lifts the quarantine of the problems' candidates: they are tried again.
  // `only_from_fleet`: deletes those that came from the fleet, and nothing else; see
  // Committer::Delete.
  virtual absl::StatusOr<int64_t> DeleteTunings(const std::string& environment,
                                                const std::vector<ConvProblem>& problems,
                                                bool only_from_fleet) = 0;
  // See Committer::Import. UNAVAILABLE, and nothing taken, once the daemon
  // drains.
  virtual absl::StatusOr<v1::ImportBundleResponse> ImportTunings(const db::TuningSource& next) = 0;
  // See Committer::ApplyFleet. UNAVAILABLE as ImportTunings.
  virtual absl::StatusOr<v1::ApplyTuningsResponse> ApplyFleetTunings(
      const db::TuningSource& next) = 0;
  // Pins the best candidate that fits the pattern and is not banned. NOT_FOUND: no tuning;
  // FAILED_PRECONDITION: the tuning does not list such a candidate, or it did not run.
  virtual absl::StatusOr<Pin> PutPin(const std::string& environment, const ConvProblem& problem,
                                     const CandidatePattern& candidate, const std::string& reason,
                                     std::optional<absl::Duration> ttl, int64_t fleet_pin) = 0;
  // See Committer::DeletePin.
  virtual absl::Status DeletePin(const std::string& environment, const ConvProblem& problem,
                                 int64_t fleet_pin) = 0;
  // Empty environment: all. Expired ones are left out.
  virtual absl::StatusOr<std::vector<Pin>> ListPins(const std::string& environment) = 0;

  // Makes the ban, or with `dry_run`, without a name, says what it would change. The ban's number
  // and create_time are not read. UNAVAILABLE while the database is being read.
  virtual absl::StatusOr<v1::CreateBanResponse> CreateBan(Ban ban, int max_changes,
                                                          bool dry_run) = 0;
  // See Committer::DeleteBan.
  virtual absl::Status DeleteBan(int64_t number, int64_t fleet_ban) = 0;
  virtual std::vector<v1::Ban> ListBans() = 0;
  // Those that hold for the key.
  virtual Bans BansOf(const TuningKey& key) = 0;

  // The environment whose tunings answer a LookupRequest with this environment and program.
  // FAILED_PRECONDITION if the program fits none, else the errors of Lookup.
  virtual absl::StatusOr<Environment> ResolveEnvironment(const std::string& name,
                                                         const Environment& program) = 0;
  virtual std::vector<v1::Environment> ListEnvironments() = 0;
  virtual std::vector<v1::Device> ListDevices() = 0;
  virtual TunerStats Stats() = 0;
  // nullptr where nothing is published.
  virtual release::Publisher* releases() { return nullptr; }

  // Refuses new work, cancels what is queued, lets the tunings that run come
  // to their end until the deadline, then kills the workers; every waiting
  // caller is called back; then publishes a last time. Blocks. Idempotent.
  virtual void Drain(SteadyTime deadline) = 0;

 protected:
  explicit Tuner(const Clock* clock) : jobs_(clock) {}

  jobs::JobTable jobs_;
};

}  // namespace convtune::tuner
