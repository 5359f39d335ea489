// Converts counters to Prometheus's metric families.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "db/store/backups.h"
#include "db/tuning_store.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/model/enums.h"
#include "proto/monitoring/metrics_server.h"
#include "server/devices/gpu_health.h"
#include "server/release/publisher.h"
#include "server/rpc/http2/handshakes.h"
#include "server/rpc/services/call_stats.h"
#include "server/tuner/tuner.h"

namespace convtune::metrics {

// Value type.
struct EnvironmentCensus {
  std::map<Evidence, int64_t> tunings;    // by their evidence
  std::map<Origin, int64_t> origins;      // and by where they came from
  absl::Time oldest = absl::UnixEpoch();  // tune times; meaningful if there are tunings
  absl::Time median = absl::UnixEpoch();
};

// An EvidenceCensus counts tunings by environment and evidence, with their age. It reads every
// tuning's head, so a scrape gets what is at most `max_age` old. Thread-safe; look-ups do not wait
// for it.
class EvidenceCensus {
 public:
  // `tuner` outlives it.
  explicit EvidenceCensus(tuner::Tuner* tuner, absl::Duration max_age = absl::Minutes(1))
      : tuner_(tuner), max_age_(max_age) {}

  // By the environment's name. Where counting fails, as it was counted last.
  std::map<std::string, EnvironmentCensus> Get();

 private:
  absl::StatusOr<std::map<std::string, EnvironmentCensus>> Count() const;

  tuner::Tuner* const tuner_;
  const absl::Duration max_age_;
  Mutex mutex_;
  std::map<std::string, EnvironmentCensus> counted_ GUARDED_BY(mutex_);
  SteadyTime count_time_ GUARDED_BY(mutex_) = SteadyTime::InfinitePast();
};

// One moment of a daemon. Value type.
struct MetricsInput {
  std::string version;
  absl::Time now;
  absl::Time start_time;
  tuner::TunerStats stats;
  std::vector<v1::Device> devices;
  std::vector<devices::GpuStatus> gpus;
  std::map<std::string, EnvironmentCensus> census;          // by the name of the environment
  std::map<std::string, rpc::services::MethodStats> calls;  // by the full name of the method
  std::optional<v1::Publication> publication;               // absent: nothing is published
  int64_t database_bytes = 0;
  v1::BackupState backups;
  int64_t lost_sockets = 0;
  int64_t certificate_end = 0;  // in seconds since 1970; 0: nothing listens over TCP
  // By http2::HandshakeFailure.
  std::array<int64_t, rpc::http2::kHandshakeFailures.size()> failed_handshakes{};
};

// What the daemon's metrics are read from: counters that the parts keep anyway. Nothing is
// counted for a scrape alone, and no metric names a problem.
struct MetricsSources {
  tuner::Tuner* tuner = nullptr;  // these five outlive the server
  db::TuningStore* store = nullptr;
  const Clock* clock = nullptr;
  const devices::GpuHealth* gpus = nullptr;  // may be nullptr
  const db::store::Backups* backups = nullptr;
};
MetricsServer::Collect DaemonFamilies(const MetricsSources& sources);

// Every metric of the daemon but those that each MetricsServer has; a family without samples is
// left out. Pure function.
std::vector<prometheus::MetricFamily> MakeFamilies(const MetricsInput& input);

}  // namespace convtune::metrics
