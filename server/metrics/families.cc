#include "server/metrics/families.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "convtune/v1/tuning_service.pb.h"
#include "google/protobuf/util/time_util.h"
#include "proto/base/status_macros.h"
#include "proto/convert/record_codec.h"
#include "proto/model/enums.h"
#include "proto/monitoring/family_builder.h"
#include "server/rpc/http2/listener.h"

namespace convtune::metrics {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

void AddCalls(const std::map<std::string, rpc::services::MethodStats>& calls,
              FamilyBuilder* families) {
  families->Begin(MetricType::Counter, "grpc_server_call_started_total",
                  "RPCs started, those that have not completed included");
  for (const auto& [method, stats] : calls) {
    families->Add(stats.started, {{"grpc_method", method}});
  }
  families->Begin(MetricType::Histogram, "grpc_server_call_duration_seconds",
                  "Time from the arrival of an RPC to the end of its handler");
  for (const auto& [method, stats] : calls) {
    for (const auto& [status, durations] : stats.ended) {
      families->Add(durations,
                    {{"grpc_method", method}, {"grpc_status", absl::StatusCodeToString(status)}});
    }
  }
}

void AddLookups(const tuner::TunerStats& stats, FamilyBuilder* families) {
  families->Counter("convtune_lookups_total", "Problems that were looked up", stats.info.lookups());
  families->Counter("convtune_lookup_hits_total", "Of them, answered from memory",
                    stats.info.hits());
  families->Begin(MetricType::Counter, "convtune_lookup_misses_total",
                  "Of them, missed when they came in, by reason; some are tuned then");
  for (size_t reason = 1; reason < stats.misses.size(); ++reason) {
    families->Add(stats.misses[reason],
                  {{"reason", EnumWord(*v1::MissReason_descriptor(), static_cast<int>(reason))}});
  }
  families->Gauge("convtune_waiting_callers", "Callers that wait for a worker",
                  stats.info.waiting_callers());
}

void AddWork(const MetricsInput& input, FamilyBuilder* families) {
  families->Gauge("convtune_queue_depth", "Problems that wait for a worker",
                  input.stats.info.queue_depth());
  families->Begin(MetricType::Histogram, "convtune_tuning_duration_seconds",
                  "Time that a device worked on a problem, by how it ended");
  for (const devices::WorkStats& work : input.stats.work) {
    families->Add(work.duration, {{"device", work.device}, {"outcome", work.outcome}});
  }
  families->Begin(MetricType::Counter, "convtune_worker_starts_total", "Worker processes started");
  for (const v1::Device& device : input.devices) {
    families->Add(device.worker_starts(), {{"device", device.name()}});
  }
  families->Begin(MetricType::Counter, "convtune_worker_deaths_total",
                  "Worker processes that ended by themselves or by a foreign signal");
  for (const v1::Device& device : input.devices) {
    families->Add(device.worker_deaths(), {{"device", device.name()}});
  }
  families->Begin(MetricType::Gauge, "convtune_device_state",
                  "1 for the state that the device is in, 0 for the others");
  for (const v1::Device& device : input.devices) {
    for (int state = 1; state < v1::DeviceState_ARRAYSIZE; ++state) {
      families->Add(device.state() == state ? 1 : 0,
                    {{"device", device.name()},
                     {"environment", device.environment()},
                     {"state", EnumWord(*v1::DeviceState_descriptor(), state)}});
    }
  }
  families->Begin(MetricType::Gauge, "convtune_device_lost",
                  "1 while the GPU is lost or has to be reset");
  for (const devices::GpuStatus& gpu : input.gpus) {
    families->Add(gpu.lost.empty() ? 0 : 1, {{"device", gpu.device}});
  }
  families->Begin(MetricType::Counter, "convtune_device_xids_total",
                  "Errors of the GPU that the driver reported, by what they mean");
  for (const devices::GpuStatus& gpu : input.gpus) {
    for (const auto& [kind, name] : {std::pair(devices::XidKind::kLost, "lost"),
                                     std::pair(devices::XidKind::kApplication, "application"),
                                     std::pair(devices::XidKind::kNotice, "notice")}) {
      int64_t sum = 0;
      for (const auto& [xid, count] : gpu.xids) sum += devices::KindOfXid(xid) == kind ? count : 0;
      families->Add(sum, {{"device", gpu.device}, {"kind", name}});
    }
  }
  families->Gauge(
      "convtune_quarantined_candidates",
      "Candidates that took a worker down or whose results are wrong, and that are not tried again",
      input.stats.quarantined);
}

void AddEvidence(const MetricsInput& input, FamilyBuilder* families) {
  families->Begin(MetricType::Gauge, "convtune_tunings",
                  "Tunings that are known, by their evidence; counted once a minute");
  for (const auto& [environment, census] : input.census) {
    for (const auto& [evidence, count] : census.tunings) {
      families->Add(count,
                    {{"environment", environment}, {"evidence", std::string(Name(evidence))}});
    }
  }
  families->Begin(MetricType::Gauge, "convtune_tunings_by_origin",
                  "Tunings that are known, by where they came from; counted once a minute");
  for (const auto& [environment, census] : input.census) {
    for (const auto& [origin, count] : census.origins) {
      families->Add(count, {{"environment", environment}, {"origin", std::string(Name(origin))}});
    }
  }
  families->Begin(MetricType::Gauge, "convtune_evidence_age_seconds",
                  "Time since measurements were taken: of the median tuning and the oldest one");
  for (const auto& [environment, census] : input.census) {
    families->Add(absl::ToDoubleSeconds(input.now - census.median),
                  {{"environment", environment}, {"of", "median"}});
    families->Add(absl::ToDoubleSeconds(input.now - census.oldest),
                  {{"environment", environment}, {"of", "oldest"}});
  }
}

void AddPublication(const v1::Publication& status, FamilyBuilder* families) {
  families->Gauge("convtune_snapshot_up_to_date",
                  "0 if the last attempt to publish what programs are served failed, or the "
                  "file is not what was published",
                  status.error().empty() ? 1 : 0);
  if (status.has_publish_time()) {
    families->Gauge("convtune_snapshot_publish_timestamp_seconds",
                    "When the snapshot was last written, in seconds since 1970",
                    static_cast<double>(google::protobuf::util::TimeUtil::TimestampToMicroseconds(
                        status.publish_time())) /
                        1e6);
  }
  families->Gauge("convtune_snapshot_release", "Release that programs are served",
                  status.release());
  families->Gauge("convtune_snapshot_canary_ratio",
                  "Share of processes that are served a canary instead",
                  static_cast<double>(status.canary_permille()) / 1000);
  families->Gauge("convtune_snapshot_choices", "Choices in the snapshot", status.choice_count());
  families->Gauge("convtune_snapshot_carried_choices",
                  "Choices in the snapshot that the database has lost", status.carried_count());
  families->Gauge("convtune_release_waiting_changes",
                  "Changed portfolios that wait for a promotion", status.waiting_changes());
  families->Gauge("convtune_wanted_problems", "Problems that programs missed",
                  status.wanted_count());
  families->Counter("convtune_datagrams_total", "Reports of programs that came in",
                    status.datagrams_received());
  families->Counter("convtune_datagrams_malformed_total", "Of them, unreadable",
                    status.datagrams_malformed());
  families->Counter("convtune_program_misses_total",
                    "Convolutions that programs were not served, as they count them",
                    status.misses());
  families->Counter("convtune_program_plans_total",
                    "Plans that programs settled on by themselves, and that were kept",
                    status.observed());
}

}  // namespace

std::map<std::string, EnvironmentCensus> EvidenceCensus::Get() {
  const SteadyTime now = SteadyTime::Now();
  MutexLock lock(mutex_);
  if (now >= count_time_ + max_age_) {
    // A count that fails is repeated at the next call; until then the last complete count stays.
    if (auto counted = Count(); counted.ok()) {
      counted_ = *std::move(counted);
      count_time_ = now;
    }
  }
  return counted_;
}

absl::StatusOr<std::map<std::string, EnvironmentCensus>> EvidenceCensus::Count() const {
  std::map<std::string, EnvironmentCensus> all;
  std::map<std::string, std::vector<absl::Time>> times;
  TuningKey after;
  bool more = true;
  while (more) {
    ASSIGN_OR_RETURN(const lookup::TuningPage page,
                     tuner_->ListTunings("", /*page_size=*/1000, after, ""));
    for (const auto& indexed : page.tunings) {
      const std::string& environment = indexed->EnvironmentName();
      EnvironmentCensus& census = all[environment];
      ++census.tunings[indexed->tuning.evidence];
      ++census.origins[indexed->tuning.origin];
      times[environment].push_back(indexed->tuning.tune_time);
    }
    more = page.more;
    if (more) after = page.last();
  }
  for (auto& [name, of] : times) {
    const auto middle = of.begin() + static_cast<ptrdiff_t>(of.size() / 2);
    std::nth_element(of.begin(), middle, of.end());
    all[name].median = *middle;
    all[name].oldest = *std::min_element(of.begin(), of.end());
  }
  return all;
}

std::vector<MetricFamily> MakeFamilies(const MetricsInput& input) {
  FamilyBuilder families;
  families.Begin(MetricType::Gauge, "convtune_build_info", "1, with the version");
  families.Add(1, {{"version", input.version}});
  families.Gauge("process_start_time_seconds", "When the daemon started, in seconds since 1970",
                 absl::ToDoubleSeconds(input.start_time - absl::UnixEpoch()));
  AddCalls(input.calls, &families);
  AddLookups(input.stats, &families);
  AddWork(input, &families);
  AddEvidence(input, &families);
  families.Gauge("convtune_database_bytes", "Size of the database with its write-ahead log",
                 input.database_bytes);
  families.Gauge("convtune_database_writable",
                 "0 while the disk refuses to take results, or the database was moved, deleted or "
                 "replaced",
                 input.stats.info.writable() ? 1 : 0);
  families.Gauge("convtune_sockets_lost",
                 "Sockets of --listen whose file was removed or replaced: no client finds them",
                 input.lost_sockets);
  if (input.backups.has_interval()) {
    families.Gauge("convtune_backup_interval_seconds",
                   "Time from one copy of the database to the next (--backup-every)",
                   absl::ToDoubleSeconds(FromProto(input.backups.interval())));
    families.Gauge("convtune_backup_timestamp_seconds",
                   "When the newest copy was made, in seconds since 1970; 0: there is none",
                   static_cast<double>(input.backups.newest_time().seconds()));
  }
  if (input.certificate_end != 0) {
    families.Gauge("convtune_tls_certificate_end_timestamp_seconds",
                   "When the server's certificate ends, in seconds since 1970",
                   input.certificate_end);
    families.Begin(MetricType::Counter, "convtune_tls_handshakes_failed_total",
                   "TLS handshakes of clients that failed, by reason");
    for (size_t i = 0; i < input.failed_handshakes.size(); ++i) {
      families.Add(input.failed_handshakes[i], {{"reason", rpc::http2::kHandshakeFailures[i]}});
    }
  }
  if (input.publication) AddPublication(*input.publication, &families);
  return families.Take();
}

MetricsServer::Collect DaemonFamilies(const MetricsSources& sources) {
  const auto census = std::make_shared<EvidenceCensus>(sources.tuner);
  return [sources, census, start_time = sources.clock->Now()] {
    MetricsInput input;
    input.version = CONVTUNE_VERSION;
    input.now = sources.clock->Now();
    input.start_time = start_time;
    input.stats = sources.tuner->Stats();
    input.devices = sources.tuner->ListDevices();
    if (sources.gpus != nullptr) input.gpus = sources.gpus->List();
    input.census = census->Get();
    input.calls = rpc::services::CallStats::Global().Snapshot();
    input.database_bytes = sources.store->SizeBytes();
    input.backups = sources.backups->GetState();
    input.lost_sockets = rpc::http2::Listener::lost_sockets();
    const rpc::http2::TlsStats& tls = rpc::http2::TlsStats::Global();
    input.certificate_end = tls.certificate_end;
    std::copy(tls.failed.begin(), tls.failed.end(), input.failed_handshakes.begin());
    if (release::Publisher* releases = sources.tuner->releases(); releases != nullptr) {
      input.publication = releases->Status();
    }
    return MakeFamilies(input);
  };
}

}  // namespace convtune::metrics
