#include "server/tuner/tuner.h"

#include <atomic>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/mutex.h"
#include "proto/base/status_macros.h"
#include "proto/convert/ban_proto.h"
#include "proto/convert/record_codec.h"
#include "proto/convert/terms_proto.h"
#include "proto/model/violation.h"
#include "server/commit/committer.h"
#include "server/devices/device_runner.h"
#include "server/devices/self_check_cache.h"
#include "server/jobs/tuning_queue.h"
#include "server/lookup/index_loader.h"
#include "server/release/publisher.h"

namespace convtune::tuner {
namespace {

// Until then a database of some thousand tunings is read; a larger one is read
// on while look-ups are answered, and who wants a list of it waits.
constexpr absl::Duration kStartWait = absl::Milliseconds(100);
constexpr absl::Duration kListWait = absl::Seconds(10);
constexpr char kDraining[] = "the daemon is draining";

decision::ProvenanceByEnvironment ProvenanceOf(const std::vector<devices::DeviceSpec>& devices) {
  decision::ProvenanceByEnvironment provenance;
  for (const devices::DeviceSpec& device : devices) {
    provenance.emplace(device.environment.ToText(), device.provenance);
  }
  return provenance;
}

// See Tuner. Locks are taken in the order: the publisher's work, releases, the
// committer, then the publisher's or the index's; and a queue's, the index's, the
// store's.
class TunerImpl final : public Tuner {
 public:
  explicit TunerImpl(Options options)
      : Tuner(options.clock),
        options_(std::move(options)),
        self_checks_(options_.self_checks_path),
        index_(ProvenanceOf(options_.devices)),
        tunings_(options_.store, options_.bases),
        committer_(tunings_, &index_, options_.clock),
        loader_(tunings_, &index_),
        lookups_(&index_, options_.clock, &jobs_) {}

  absl::Status Start() {
    std::map<std::string, int> names;
    for (const devices::DeviceSpec& device : options_.devices) {
      const std::string text = device.environment.ToText();
      if (current_.count(text) > 0) continue;
      current_[text] = {device.environment, text, text, std::make_shared<jobs::TuningQueue>(), ""};
      ++names[device.environment.Name()];
    }
    for (auto& [text, current] : current_) {
      if (names[current.environment.Name()] == 1) current.word = current.environment.Name();
    }
    RETURN_IF_ERROR(committer_.Load(options_.shipped_bans));
    RETURN_IF_ERROR(loader_.Start(kStartWait));
    RETURN_IF_ERROR(ReadStoredEnvironments());
    RETURN_IF_ERROR(StartPublisher());
    for (const devices::DeviceSpec& device : options_.devices) {
      devices::DeviceRunner::Options runner;
      runner.device = device;
      runner.queue = current_.at(device.environment.ToText()).queue.get();
      runner.turn = &turns_[device.gpu.empty() ? device.name : device.gpu];
      runner.committer = &committer_;
      runner.clock = options_.clock;
      runner.gpu_health = options_.gpu_health != nullptr ? options_.gpu_health : &all_healthy_;
      runner.self_checks = &self_checks_;
      runner.limits = options_;
      ASSIGN_OR_RETURN(std::unique_ptr<devices::DeviceRunner> started,
                       devices::DeviceRunner::Create(runner));
      devices_.push_back(std::move(started));
    }
    return absl::OkStatus();
  }

  ~TunerImpl() override { Drain(SteadyTime::InfinitePast()); }

  uint64_t Lookup(lookup::LookupRequest request, lookup::LookupCallback done) override {
    if (draining_) {
      done(absl::UnavailableError(kDraining));
      return 0;
    }
    const absl::StatusOr<lookup::ResolvedEnvironment> environment =
        Resolve(request.environment, request.program);
    if (!environment.ok()) {
      done(environment.status());
      return 0;
    }
    return lookups_.Start(std::move(request), *environment, std::move(done));
  }

  void EndLookup(uint64_t token, bool keep_work) override { lookups_.End(token, keep_work); }
  void CountHits(int64_t count) override { lookups_.CountHits(count); }
  uint64_t EnvironmentsVersion() const override {
    return index_.counts_version() + stored_version_;
  }
  absl::StatusOr<v1::TuningJob> CreateJob(const jobs::JobRequest& request) override {
    if (draining_) return absl::UnavailableError(kDraining);
    ASSIGN_OR_RETURN(const lookup::ResolvedEnvironment environment,
                     Resolve(request.environment, request.program));
    if (!environment.misfit.empty()) return absl::FailedPreconditionError(environment.misfit);
    if (environment.queue == nullptr) {
      return absl::FailedPreconditionError("environment: no device of this daemon has it");
    }
    RETURN_IF_ERROR(environment.queue->CheckRoom(request.problems.size()));
    return lookups_.CreateJob(environment, request);
  }

  absl::StatusOr<Tuning> GetTuning(const std::string& environment,
                                   const ConvProblem& problem) override {
    ASSIGN_OR_RETURN(const TuningKey key, KeyOf(environment, problem));
    // Whoever asks for one by name wants what was measured.
    const auto known = index_.Find(key).tuning;
    if (known != nullptr && known->stand_in != nullptr) return tunings_.GetTuning(key);
    absl::StatusOr<Tuning> tuning = committer_.Get(key);
    if (!absl::IsNotFound(tuning.status())) return tuning;
    // One for less strict alignment serves the problem too.
    const lookup::IndexHit serving = index_.FindServing(problem, key);
    if (serving.tuning != nullptr) return committer_.Get(serving.tuning->tuning.key.Whole());
    return MissingError(
        {"tuning", key.problem_text},
        absl::StrCat("problem: no tuning of ", key.problem_text, " in ", key.environment_text));
  }

  std::map<CandidateId, QuarantineEntry> QuarantineOf(const TuningKey& key) override {
    return committer_.QuarantinedOf(key);
  }

  absl::StatusOr<lookup::TuningPage> ListTunings(const std::string& environment, int page_size,
                                                 const TuningKey& after,
                                                 const std::string& text_filter) override {
    ASSIGN_OR_RETURN(const std::string text, TextOf(environment));
    RETURN_IF_ERROR(loader_.Await(kListWait));
    return index_.List(text, static_cast<size_t>(page_size), after, text_filter);
  }

  absl::StatusOr<int64_t> DeleteTunings(const std::string& environment,
                                        const std::vector<ConvProblem>& problems,
                                        bool only_from_fleet) override {
    std::vector<TuningKey> keys;
    for (const ConvProblem& problem : problems) {
      ASSIGN_OR_RETURN(keys.emplace_back(), KeyOf(environment, problem));
    }
    // Whoever deletes a problem wants it found out anew; the fleet does not.
    for (const TuningKey& key : keys) {
      if (only_from_fleet) break;
      RETURN_IF_ERROR(committer_.LiftQuarantine(key, [](const QuarantineEntry&) { return true; }));
    }
    return committer_.Delete(keys, only_from_fleet);
  }

  absl::StatusOr<v1::ImportBundleResponse> ImportTunings(const db::TuningSource& next) override {
    ASSIGN_OR_RETURN(v1::ImportBundleResponse counts, committer_.Import(UntilDrain(next)));
    RETURN_IF_ERROR(ReadStoredEnvironments());
    return counts;
  }

  absl::StatusOr<v1::ApplyTuningsResponse> ApplyFleetTunings(
      const db::TuningSource& next) override {
    ASSIGN_OR_RETURN(v1::ApplyTuningsResponse counts, committer_.ApplyFleet(UntilDrain(next)));
    RETURN_IF_ERROR(ReadStoredEnvironments());
    return counts;
  }

  absl::StatusOr<Pin> PutPin(const std::string& environment, const ConvProblem& problem,
                             const CandidatePattern& candidate, const std::string& reason,
                             std::optional<absl::Duration> ttl, int64_t fleet_pin) override {
    ASSIGN_OR_RETURN(TuningKey key, KeyOf(environment, problem));
    Pin pin;
    pin.key = std::move(key);
    pin.reason = reason;
    pin.create_time = ToMicros(options_.clock->Now());
    pin.fleet_pin = fleet_pin;
    if (ttl) pin.expire_time = pin.create_time + absl::Trunc(*ttl, absl::Microseconds(1));
    RETURN_IF_ERROR(committer_.PutPin(candidate, &pin));
    return pin;
  }

  absl::Status DeletePin(const std::string& environment, const ConvProblem& problem,
                         int64_t fleet_pin) override {
    ASSIGN_OR_RETURN(const TuningKey key, KeyOf(environment, problem));
    return committer_.DeletePin(key, fleet_pin);
  }

  absl::StatusOr<std::vector<Pin>> ListPins(const std::string& environment) override {
    ASSIGN_OR_RETURN(const std::string text, TextOf(environment));
    return index_.ListPins(text, options_.clock->Now());
  }

  absl::StatusOr<v1::CreateBanResponse> CreateBan(Ban ban, int max_changes, bool dry_run) override {
    ban.create_time = ToMicros(options_.clock->Now());
    RETURN_IF_ERROR(ban.CheckExpiry(ban.create_time));
    RETURN_IF_ERROR(loader_.Await(kListWait));
    ASSIGN_OR_RETURN(v1::CreateBanResponse created, committer_.AddBan(&ban, max_changes, dry_run));
    *created.mutable_ban() = ToProto(ban);
    return created;
  }

  absl::Status DeleteBan(int64_t number, int64_t fleet_ban) override {
    RETURN_IF_ERROR(loader_.Await(kListWait));
    return committer_.DeleteBan(number, fleet_ban);
  }

  std::vector<v1::Ban> ListBans() override {
    std::map<int64_t, int64_t> counts = index_.CountBanned();
    std::vector<v1::Ban> bans;
    for (const Bans::Shared& ban : committer_.ListBans()) {
      bans.push_back(ToProto(*ban));
      bans.back().set_tuning_count(counts[ban->number]);
    }
    return bans;
  }

  Bans BansOf(const TuningKey& key) override { return index_.bans()->Of(key); }
  absl::StatusOr<Environment> ResolveEnvironment(const std::string& name,
                                                 const Environment& program) override {
    if (draining_) return absl::UnavailableError(kDraining);
    ASSIGN_OR_RETURN(lookup::ResolvedEnvironment resolved, Resolve(name, program));
    if (!resolved.misfit.empty()) return absl::FailedPreconditionError(resolved.misfit);
    return std::move(resolved.environment);
  }

  std::vector<v1::Environment> ListEnvironments() override {
    std::map<std::string, int64_t> counts = index_.Counts();
    std::vector<v1::Environment> environments;
    for (const lookup::ResolvedEnvironment& known : NamedEnvironments("")) {
      v1::Environment& listed = environments.emplace_back(ToProto(known.environment));
      const auto device = index_.libraries().find(known.text);
      *listed.mutable_provenance() =
          ToProto(device != index_.libraries().end() ? device->second : Provenance());
      listed.set_current(known.queue != nullptr);
      listed.set_tuning_count(counts[known.text]);
    }
    return environments;
  }

  std::vector<v1::Device> ListDevices() override {
    std::vector<v1::Device> statuses;
    for (size_t i = 0; i < devices_.size(); ++i) {
      statuses.push_back(devices_[i]->Status());
      statuses[i].set_environment(current_.at(options_.devices[i].environment.ToText()).word);
    }
    return statuses;
  }

  TunerStats Stats() override {
    TunerStats stats;
    v1::ServerInfo& info = stats.info;
    for (const auto& [environment, count] : index_.Counts()) {
      info.set_tuning_count(info.tuning_count() + count);
    }
    for (const auto& [text, current] : current_) {
      info.set_queue_depth(info.queue_depth() + current.queue->depth());
    }
    for (const auto& device : devices_) {
      info.set_worker_requests(info.worker_requests() + device->requests());
      info.set_worker_starts(info.worker_starts() + device->Status().worker_starts());
      device->AddWork(&stats.work);
    }
    info.set_writable(committer_.writable());
    info.set_not_on_disk(committer_.waiting());
    info.set_lookups(lookups_.problems());
    info.set_hits(lookups_.hits());
    info.set_waiting_callers(lookups_.waiting());
    stats.misses = lookups_.misses();
    stats.quarantined = committer_.quarantined();
    return stats;
  }

  release::Publisher* releases() override { return publisher_.get(); }
  void Drain(SteadyTime deadline) override {
    draining_ = true;
    ++stored_version_;  // ResolveEnvironment says so
    MutexLock lock(drain_mutex_);
    if (drained_) return;
    drained_ = true;
    for (auto& [text, current] : current_) current.queue->Shut();
    for (auto& [text, current] : current_) current.queue->WaitIdle(deadline);
    // Work that devices still do has no more callers, or no more time.
    for (const auto& device : devices_) device->Cancel();
    for (const auto& device : devices_) device->Join();
    jobs_.Stop();
    committer_.Stop();
    loader_.Stop();
    if (publisher_ != nullptr) publisher_->Stop();
  }

 private:
  // Adds the environments that the store knows beyond those of devices. Others stay: a report of a
  // program counts before its row is written.
  absl::Status ReadStoredEnvironments() {
    ASSIGN_OR_RETURN(const std::vector<Environment> stored, tunings_.ListEnvironments());
    MutexLock lock(stored_mutex_);
    for (const Environment& environment : stored) {
      const std::string text = environment.ToText();
      if (!current_.contains(text)) stored_.insert_or_assign(text, environment);
    }
    ++stored_version_;
    return absl::OkStatus();
  }

  db::TuningSource UntilDrain(const db::TuningSource& next) const {
    return [this, &next]() -> absl::StatusOr<std::optional<db::TuningRecord>> {
      if (draining_) return absl::UnavailableError(kDraining);
      return next();
    };
  }

  absl::Status StartPublisher() {
    if (options_.publish.folder.empty()) return absl::OkStatus();
    release::Publisher::Options options;
    options.publish = options_.publish;
    options.store = options_.store;
    options.index = &index_;
    options.committer = &committer_;
    options.clock = options_.clock;
    options.await_index = [this] { return loader_.Await(absl::InfiniteDuration()); };
    for (const auto& [text, current] : current_) options.current.push_back(current.environment);
    options.complete = std::bind_front(&TunerImpl::Complete, this);
    options.resolve = [this](const std::string& name) -> absl::StatusOr<std::string> {
      ASSIGN_OR_RETURN(const lookup::ResolvedEnvironment resolved, Resolve(name));
      return resolved.text;
    };
    options.tune = std::bind_front(&TunerImpl::TuneIdle, this);
    publisher_ = release::Publisher::Create(std::move(options));
    committer_.SetObserver(
        [this](const TuningKey& key, bool override) { publisher_->NoteChange(key, override); },
        [this] { publisher_->NoteBans(); });
    return publisher_->Start();
  }

  // The environment in full; one that is new is listed from now on.
  Environment Complete(const Environment& environment) {
    const std::string text = environment.ToText();
    const auto current = current_.find(text);
    if (current != current_.end()) return current->second.environment;
    MutexLock lock(stored_mutex_);
    const auto [known, is_new] = stored_.emplace(text, environment);
    if (is_new) ++stored_version_;
    return known->second;
  }

  bool TuneIdle(const TuningKey& key, std::function<void(const absl::Status&)> done) {
    const auto current = current_.find(key.environment_text);
    if (draining_ || current == current_.end()) return false;
    // Those with the same name may share its GPU.
    const std::string name = current->second.environment.Name();
    for (const auto& [text, other] : current_) {
      if (other.environment.Name() == name && !other.queue->idle()) return false;
    }
    absl::StatusOr<ConvProblem> problem = ConvProblem::Parse(key.problem_text);
    if (!problem.ok()) {
      done(problem.status());
      return true;
    }
    jobs::TuningOptions tuning_options;
    tuning_options.time_budget = options_.publish.wanted_budget;
    tuning_options.memory_budget_bytes = options_.publish.wanted_memory_budget_bytes;
    tuning_options.wait_idle = options_.publish.wanted_wait_idle;
    jobs::WorkSpec spec{*std::move(problem), key, jobs::WorkKind::kTune, tuning_options};
    jobs::Subscriber subscriber;
    subscriber.done = [done = std::move(done)](const jobs::WorkResult& result) {
      done(result.status);
    };
    current->second.queue->Submit(std::move(spec), jobs::Priority::kIdle, std::move(subscriber),
                                  [] { return true; });
    return true;
  }

  // Those with this name or text, or all if it is empty; of devices first.
  std::vector<lookup::ResolvedEnvironment> NamedEnvironments(const std::string& name) const {
    std::vector<lookup::ResolvedEnvironment> named;
    const auto add = [&](const lookup::ResolvedEnvironment& e) {
      if (name.empty() || name == e.text || name == e.environment.Name()) named.push_back(e);
    };
    for (const auto& [text, current] : current_) add(current);
    MutexLock lock(stored_mutex_);
    for (const auto& [text, stored] : stored_) add({stored, text, text, nullptr, ""});
    return named;
  }

  // The only one that is named and that the program fits; those of devices go before
  // others. With a `misfit` if it fits none.
  absl::StatusOr<lookup::ResolvedEnvironment> Resolve(const std::string& name,
                                                      const Environment& program = {}) const {
    const std::vector<lookup::ResolvedEnvironment> named = NamedEnvironments(name);
    const auto join = [](const std::vector<lookup::ResolvedEnvironment>& environments) {
      return absl::StrJoin(environments, ", ",
                           [](std::string* out, const auto& e) { out->append(e.word); });
    };
    if (named.empty()) {
      const std::string all = join(NamedEnvironments(""));
      if (!all.empty()) {
        return MissingError({"environment", name}, absl::StrCat("environment: there is no \"", name,
                                                                "\"; there is ", all));
      }
      return absl::FailedPreconditionError(
          "environment: the daemon knows no environment: it has no device, and its database no "
          "tuning");
    }
    std::vector<lookup::ResolvedEnvironment> fitting;
    for (const lookup::ResolvedEnvironment& e : named) {
      // Devices' environments stand first. Stored ones count where no device's fits.
      if (e.queue == nullptr && !fitting.empty() && fitting[0].queue != nullptr) break;
      if (Fits(program, e.environment)) fitting.push_back(e);
    }
    if (fitting.empty()) {
      lookup::ResolvedEnvironment other = named[0];
      other.misfit = absl::StrCat("other environment: the program has ", KnownText(program),
                                  "; answers are for ", other.text,
                                  named.size() == 1 ? "" : " and others that do not fit either",
                                  "; start convtuned with the program's GPU and cuDNN, or import a "
                                  "bundle of its environment");
      return other;
    }
    if (fitting.size() > 1) {
      return ViolationError(
          {"environment", absl::StrCat("must name one where there are several: ", join(fitting))});
    }
    return fitting[0];
  }

  // The text of the environment that is named so; empty where the name is, which stands for all.
  absl::StatusOr<std::string> TextOf(const std::string& environment) const {
    if (environment.empty()) return "";
    ASSIGN_OR_RETURN(lookup::ResolvedEnvironment resolved, Resolve(environment));
    return std::move(resolved.text);
  }

  absl::StatusOr<TuningKey> KeyOf(const std::string& environment,
                                  const ConvProblem& problem) const {
    ASSIGN_OR_RETURN(const lookup::ResolvedEnvironment resolved, Resolve(environment));
    return TuningKey{problem.ToText(), resolved.text};
  }

  const Options options_;
  devices::SelfCheckCache self_checks_;
  lookup::TuningIndex index_;
  const db::LayeredTunings tunings_;
  commit::Committer committer_;
  lookup::IndexLoader loader_;
  lookup::Lookups lookups_;
  // Not changed after Start.
  std::map<std::string, lookup::ResolvedEnvironment> current_;  // of devices, by text
  std::map<std::string, devices::GpuTurn> turns_;               // by GPU, else by device
  devices::GpuHealth all_healthy_;
  std::vector<std::unique_ptr<devices::DeviceRunner>> devices_;
  std::unique_ptr<release::Publisher> publisher_;  // may be nullptr
  mutable Mutex stored_mutex_;
  // Environments that no device has, by text.
  std::map<std::string, Environment> stored_ GUARDED_BY(stored_mutex_);
  std::atomic<uint64_t> stored_version_{0};
  std::atomic<bool> draining_{false};
  Mutex drain_mutex_;
  bool drained_ GUARDED_BY(drain_mutex_) = false;
};
}  // namespace

absl::StatusOr<std::unique_ptr<Tuner>> Tuner::Create(Options options) {
  auto tuner = std::make_unique<TunerImpl>(std::move(options));
  RETURN_IF_ERROR(tuner->Start());
  return tuner;
}

}  // namespace convtune::tuner
