// TunerImpl is the tuner, put together of its parts.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/base/mutex.h"
#include "server/commit/committer.h"
#include "server/devices/device_runner.h"
#include "server/jobs/job_table.h"
#include "server/jobs/tuning_queue.h"
#include "server/lookup/index_loader.h"
#include "server/lookup/judgement.h"
#include "server/lookup/lookups.h"
#include "server/lookup/tuning_index.h"
#include "server/release/publisher.h"
#include "server/supervisor/self_check_cache.h"
#include "server/tuner/tuner.h"

namespace convtune::tuner {

// See Tuner. Locks are taken in the order: the publisher's work, releases, the
// committer, then the publisher's or the index's; and a queue's, the index's, the
// store's.
class TunerImpl : public Tuner {
 public:
  ~TunerImpl() override;

  uint64_t Lookup(lookup::LookupRequest request, lookup::LookupCallback done) override;
  void CancelLookup(uint64_t token) override { lookups_.Cancel(token); }
  void AbandonLookup(uint64_t token) override { lookups_.Abandon(token); }
  void CountHits(int64_t count) override { lookups_.CountHits(count); }
  uint64_t EnvironmentsVersion() const override {
    return index_.counts_version() + stored_version_;
  }
  absl::StatusOr<v1::TuningJob> CreateJob(jobs::JobRequest request) override;
  absl::StatusOr<v1::TuningJob> GetJob(const std::string& name) override { return jobs_.Get(name); }
  absl::StatusOr<jobs::JobPage> ListJobs(int page_size, const std::string& page_token) override;
  absl::StatusOr<v1::TuningJob> CancelJob(const std::string& name) override;
  absl::StatusOr<uint64_t> WatchJob(const std::string& name, jobs::JobCallback on_change) override {
    return jobs_.Watch(name, std::move(on_change));
  }
  void StopWatching(uint64_t token) override { jobs_.StopWatching(token); }
  absl::StatusOr<Tuning> GetTuning(const std::string& environment,
                                   const ConvProblem& problem) override;
  std::vector<QuarantineEntry> QuarantineOf(const TuningKey& key) override;
  absl::StatusOr<lookup::TuningPage> ListTunings(const std::string& environment, int page_size,
                                                 const TuningKey& after,
                                                 const std::string& text_filter) override;
  absl::StatusOr<int64_t> DeleteTunings(const std::string& environment,
                                        const std::vector<ConvProblem>& problems) override;
  absl::StatusOr<int64_t> WithdrawFleetTunings(const std::string& environment,
                                               const std::vector<ConvProblem>& problems) override;
  absl::StatusOr<v1::ImportBundleResponse> ImportTunings(const db::TuningSource& next) override;
  absl::StatusOr<v1::ApplyTuningsResponse> ApplyFleetTunings(
      const db::TuningSource& next, const db::WaitsForFleet& waits) override;
  absl::StatusOr<Pin> PutPin(const std::string& environment, const ConvProblem& problem,
                             const CandidatePattern& candidate, const std::string& reason,
                             std::optional<absl::Duration> ttl, int64_t fleet_pin) override;
  absl::Status DeletePin(const std::string& environment, const ConvProblem& problem,
                         int64_t fleet_pin) override;
  absl::StatusOr<std::vector<Pin>> ListPins(const std::string& environment) override;
  absl::StatusOr<v1::CreateBanResponse> CreateBan(Ban ban, int max_changes, bool dry_run) override;
  absl::Status DeleteBan(int64_t number, int64_t fleet_ban) override;
  std::vector<ListedBan> ListBans() override;
  Bans BansOf(const TuningKey& key) override { return index_.bans()->Of(key); }
  absl::StatusOr<Environment> ResolveEnvironment(const std::string& name,
                                                 const Environment& program) override;
  std::vector<EnvironmentInfo> ListEnvironments() override;
  std::vector<v1::Device> ListDevices() override;
  TunerStats Stats() override;
  release::ReleaseManager* releases() override { return publisher_.get(); }
  void Drain(SteadyTime deadline) override;

 private:
  friend absl::StatusOr<std::unique_ptr<Tuner>> Tuner::Create(Options options);

  // An environment that a device has.
  struct Current {
    Environment environment;
    std::string word;  // what requests call it: its name, or its text where others have the name
    Provenance provenance;
    std::unique_ptr<jobs::TuningQueue> queue;
  };

  explicit TunerImpl(Options options);
  absl::Status Start();
  // Reads anew which environments the store knows beyond those of devices.
  absl::Status ReadStoredEnvironments();
  std::vector<Environment> StoredEnvironments() const;
  // Fills current_.
  void AddEnvironments();
  // Without what does not hold for the devices that there are, which is counted.
  db::TuningSource OfThoseThatHold(const db::TuningSource& next, int64_t* outdated) const;
  absl::Status StartPublisher();
  // The environment in full; one that is new is listed from now on.
  Environment Complete(const Environment& environment);
  bool TuneIdle(const TuningKey& key, std::function<void(const absl::Status&)> done);
  // Those with this name or text, or all if it is empty; of devices first.
  std::vector<lookup::ResolvedEnvironment> NamedEnvironments(const std::string& name) const;
  // The only one that is named and that the program fits; those of devices go before
  // others. With a `misfit` if it fits none.
  absl::StatusOr<lookup::ResolvedEnvironment> Resolve(const std::string& name,
                                                      const Environment& program = {}) const;
  absl::StatusOr<TuningKey> KeyOf(const std::string& environment, const ConvProblem& problem) const;
  absl::StatusOr<std::vector<TuningKey>> KeysOf(const std::string& environment,
                                                const std::vector<ConvProblem>& problems) const;
  // Submits the work for the job of that name. Returns false where the queue adds nothing; see
  // TuningQueue::Submit.
  bool SubmitFor(const std::string& job, jobs::TuningQueue* queue, const jobs::WorkSpec& spec,
                 jobs::Priority priority, SteadyTime expires, const std::function<bool()>& needed);
  // ALREADY_EXISTS: the request's id is another's.
  absl::StatusOr<v1::TuningJob> QueueJob(const lookup::ResolvedEnvironment& environment,
                                         const jobs::JobRequest& request);
  // See AbandonLookup. The work is queued, and stays so while this runs.
  void KeepWork(const lookup::ResolvedEnvironment& environment,
                const std::vector<jobs::WorkSpec>& work);
  // See BetterWork.
  std::optional<jobs::WorkKind> WorkOf(const ConvProblem& problem, const TuningKey& key,
                                       const lookup::ResolvedEnvironment& environment,
                                       const jobs::Demand& demand) const;

  const Options options_;
  supervisor::SelfCheckCache self_checks_;
  lookup::TuningIndex index_;
  const db::LayeredTunings tunings_;
  commit::Committer committer_;
  lookup::IndexLoader loader_;
  jobs::JobTable jobs_;
  lookup::Lookups lookups_;
  // Not changed after Start.
  std::map<std::string, Current> current_;  // by text
  std::map<std::string, devices::GpuTurn> turns_;
  std::vector<std::unique_ptr<devices::DeviceRunner>> devices_;
  std::unique_ptr<release::Publisher> publisher_;  // may be nullptr
  mutable Mutex stored_mutex_;
  std::vector<Environment> stored_ GUARDED_BY(stored_mutex_);  // those that no device has
  std::atomic<uint64_t> stored_version_{0};
  std::atomic<bool> draining_{false};
  Mutex drain_mutex_;
  bool drained_ GUARDED_BY(drain_mutex_) = false;
};

}  // namespace convtune::tuner
