#include "server/metrics/families.h"

#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "convtune/v1/tuning_service.pb.h"
#include "server/devices/xid.h"

namespace convtune::metrics {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr double kNanosecondsPerSecond = 1e9;

using Labels = std::vector<ClientMetric::Label>;

class Families {
 public:
  // The family that Counter, Gauge and Histogram add to from now on.
  void Begin(MetricType type, const char* name, const char* help) {
    End();
    family_ = {name, help, type, {}};
  }

  void Add(double value, Labels labels = {}) {
    ClientMetric metric;
    metric.label = std::move(labels);
    if (family_.type == MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
    family_.metric.push_back(std::move(metric));
  }

  // Nanoseconds become seconds.
  void Add(const HistogramSnapshot& snapshot, Labels labels) {
    ClientMetric metric;
    metric.label = std::move(labels);
    auto& histogram = metric.histogram;
    uint64_t below = 0;
    for (size_t i = 0; i < snapshot.bounds.size(); ++i) {
      below += static_cast<uint64_t>(snapshot.counts[i]);
      histogram.bucket.push_back(
          {below, static_cast<double>(snapshot.bounds[i]) / kNanosecondsPerSecond});
    }
    histogram.sample_count = static_cast<uint64_t>(snapshot.count());
    histogram.sample_sum = static_cast<double>(snapshot.sum) / kNanosecondsPerSecond;
    family_.metric.push_back(std::move(metric));
  }

  void Counter(const char* name, const char* help, double value) {
    Begin(MetricType::Counter, name, help);
    Add(value);
  }
  void Gauge(const char* name, const char* help, double value) {
    Begin(MetricType::Gauge, name, help);
    Add(value);
  }

  std::vector<MetricFamily> Take() {
    End();
    return std::move(families_);
  }

 private:
  void End() {
    if (!family_.metric.empty()) families_.push_back(std::move(family_));
    family_ = {};
  }

  MetricFamily family_;
  std::vector<MetricFamily> families_;
};

double Count(int64_t count) { return static_cast<double>(count); }

// "not_found" of MISS_REASON_NOT_FOUND.
std::string LowerName(const std::string& name, std::string_view prefix) {
  return absl::AsciiStrToLower(name.substr(prefix.size()));
}

std::string MissName(size_t reason) {
  return LowerName(v1::MissReason_Name(static_cast<int>(reason)), "MISS_REASON_");
}

std::string StateName(v1::DeviceState state) {
  return LowerName(v1::DeviceState_Name(state), "DEVICE_STATE_");
}

void AddCalls(const std::vector<rpc::services::MethodStats>& calls, Families* families) {
  families->Begin(MetricType::Counter, "grpc_server_call_started_total",
                  "RPCs started, those that have not completed included");
  for (const rpc::services::MethodStats& call : calls) {
    families->Add(Count(call.started), {{"grpc_method", call.method}});
  }
  families->Begin(MetricType::Histogram, "grpc_server_call_duration_seconds",
                  "Time from the arrival of an RPC to the end of its handler");
  for (const rpc::services::MethodStats& call : calls) {
    for (const rpc::services::MethodStats::Ended& ended : call.ended) {
      families->Add(ended.duration, {{"grpc_method", call.method}, {"grpc_status", ended.status}});
    }
  }
}

void AddLookups(const tuner::TunerStats& stats, Families* families) {
  families->Counter("convtune_lookups_total", "Problems that were looked up", Count(stats.lookups));
  families->Counter("convtune_lookup_hits_total", "Of them, answered from memory",
                    Count(stats.hits));
  families->Begin(MetricType::Counter, "convtune_lookup_misses_total",
                  "Of them, missed when they came in, by reason; some are tuned then");
  for (size_t reason = 1; reason < stats.misses.size(); ++reason) {
    families->Add(Count(stats.misses[reason]), {{"reason", MissName(reason)}});
  }
  families->Counter("convtune_saved_seconds_total",
                    "Tuning time of the problems that were hit, which callers did not spend again",
                    absl::ToDoubleSeconds(stats.saved));
  families->Gauge("convtune_waiting_callers", "Callers that wait for a worker",
                  Count(stats.waiting_callers));
}

void AddWork(const MetricsInput& input, Families* families) {
  families->Gauge("convtune_queue_depth", "Problems that wait for a worker",
                  Count(input.stats.queue_depth));
  families->Begin(MetricType::Histogram, "convtune_tuning_duration_seconds",
                  "Time that a device worked on a problem, by how it ended");
  for (const supervisor::WorkStats& work : input.stats.work) {
    families->Add(work.duration, {{"device", work.device}, {"outcome", work.outcome}});
  }
  families->Begin(MetricType::Counter, "convtune_worker_starts_total", "Worker processes started");
  for (const supervisor::DeviceStatus& device : input.devices) {
    families->Add(Count(device.worker_starts), {{"device", device.name}});
  }
  families->Begin(MetricType::Counter, "convtune_worker_deaths_total",
                  "Worker processes that ended by themselves or by a foreign signal");
  for (const supervisor::DeviceStatus& device : input.devices) {
    families->Add(Count(device.worker_deaths), {{"device", device.name}});
  }
  families->Begin(MetricType::Gauge, "convtune_device_state",
                  "1 for the state that the device is in, 0 for the others");
  for (const supervisor::DeviceStatus& device : input.devices) {
    for (int state = 1; state < v1::DeviceState_ARRAYSIZE; ++state) {
      families->Add(static_cast<int>(device.state) == state ? 1 : 0,
                    {{"device", device.name},
                     {"environment", device.environment},
                     {"state", StateName(static_cast<v1::DeviceState>(state))}});
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
      families->Add(Count(sum), {{"device", gpu.device}, {"kind", name}});
    }
  }
  families->Gauge(
      "convtune_quarantined_candidates",
      "Candidates that took a worker down or whose results are wrong, and that are not tried again",
      Count(input.stats.quarantined));
}

void AddEvidence(const MetricsInput& input, Families* families) {
  families->Begin(MetricType::Gauge, "convtune_tunings",
                  "Tunings that are known, by their evidence; counted once a minute");
  for (const EnvironmentCensus& census : input.census) {
    for (const auto& [evidence, count] : census.tunings) {
      families->Add(Count(count), {{"environment", census.environment},
                                   {"evidence", std::string(Name(evidence))}});
    }
  }
  families->Begin(MetricType::Gauge, "convtune_tunings_by_origin",
                  "Tunings that are known, by where they came from; counted once a minute");
  for (const EnvironmentCensus& census : input.census) {
    for (const auto& [origin, count] : census.origins) {
      families->Add(Count(count),
                    {{"environment", census.environment}, {"origin", std::string(Name(origin))}});
    }
  }
  families->Begin(MetricType::Gauge, "convtune_evidence_age_seconds",
                  "Time since measurements were taken: of the median tuning and the oldest one");
  for (const EnvironmentCensus& census : input.census) {
    families->Add(absl::ToDoubleSeconds(input.now - census.median),
                  {{"environment", census.environment}, {"of", "median"}});
    families->Add(absl::ToDoubleSeconds(input.now - census.oldest),
                  {{"environment", census.environment}, {"of", "oldest"}});
  }
}

void AddPublication(const release::PublicationStatus& status, Families* families) {
  families->Gauge("convtune_snapshot_up_to_date",
                  "0 if the last attempt to publish what programs are served failed",
                  status.error.empty() ? 1 : 0);
  if (status.publish_time) {
    families->Gauge("convtune_snapshot_publish_timestamp_seconds",
                    "When the snapshot was last written, in seconds since 1970",
                    absl::ToDoubleSeconds(*status.publish_time - absl::UnixEpoch()));
  }
  families->Gauge("convtune_snapshot_release", "Release that programs are served",
                  Count(status.release));
  families->Gauge("convtune_snapshot_canary_ratio",
                  "Share of processes that are served a canary instead",
                  static_cast<double>(status.canary_permille) / 1000);
  families->Gauge("convtune_snapshot_choices", "Choices in the snapshot",
                  Count(status.choice_count));
  families->Gauge("convtune_snapshot_carried_choices",
                  "Choices in the snapshot that the database has lost",
                  Count(status.carried_count));
  families->Gauge("convtune_release_waiting_changes", "Changed choices that wait for a promotion",
                  Count(status.waiting_changes));
  families->Gauge("convtune_wanted_problems", "Problems that programs missed",
                  Count(status.wanted_count));
  families->Counter("convtune_datagrams_total", "Reports of programs that came in",
                    Count(status.datagrams.received));
  families->Counter("convtune_datagrams_malformed_total", "Of them, unreadable",
                    Count(status.datagrams.malformed));
  families->Counter("convtune_program_misses_total",
                    "Convolutions that programs were not served, as they count them",
                    Count(status.datagrams.misses));
  families->Counter("convtune_program_plans_total",
                    "Plans that programs settled on by themselves, and that were kept",
                    Count(status.datagrams.observed));
}

}  // namespace

std::vector<MetricFamily> MakeFamilies(const MetricsInput& input) {
  Families families;
  families.Begin(MetricType::Gauge, "convtune_build_info", "1, with the version");
  families.Add(1, {{"version", input.version}});
  families.Gauge("process_start_time_seconds", "When the daemon started, in seconds since 1970",
                 absl::ToDoubleSeconds(input.start_time - absl::UnixEpoch()));
  AddCalls(input.calls, &families);
  AddLookups(input.stats, &families);
  AddWork(input, &families);
  AddEvidence(input, &families);
  families.Gauge("convtune_database_bytes", "Size of the database with its write-ahead log",
                 Count(input.database_bytes));
  families.Gauge("convtune_database_writable", "0 while the disk refuses to take results",
                 input.stats.writable ? 1 : 0);
  if (input.publication) AddPublication(*input.publication, &families);
  return families.Take();
}

}  // namespace convtune::metrics
