#include "server/worker/timing/sample_plan.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_join.h"

namespace convtune::worker::timing {
namespace {

constexpr double kPreparationHostUs = 20.0;  // flush, events
constexpr uint64_t kShortestWindowNs = 5000;
constexpr double kHopelessUs = 50'000;
constexpr double kHopelessFactor = 10;
constexpr absl::Duration kShortestTimeout = absl::Milliseconds(200);
constexpr absl::Duration kLongestTimeout = absl::Seconds(2);

}  // namespace

SamplePlan PlanSample(const TimedRun& expected, int sample_us) {
  SamplePlan plan;
  if (expected.gpu_us > 0) {
    const double runs = std::ceil(sample_us / expected.gpu_us);
    plan.runs = static_cast<int>(std::clamp(runs, 1.0, static_cast<double>(kMostRuns)));
  }
  const double queueing_us = plan.runs * (expected.host_us + kPreparationHostUs);
  plan.block_timeout =
      std::clamp(absl::Microseconds(queueing_us * 50), kShortestTimeout, kLongestTimeout);
  return plan;
}

int BlockingPolicy::Attempts(const std::string& engine, bool gave_up_before) const {
  const auto known = gave_up_.find(engine);
  const bool engine_waits = known != gave_up_.end() && known->second >= kCandidates;
  return disabled() || gave_up_before || engine_waits ? 0 : kAttempts;
}

void BlockingPolicy::Took(const std::string& engine, bool blocked) {
  if (blocked) {
    worked_.insert(engine);
    gave_up_.erase(engine);
  } else if (!worked_.contains(engine)) {
    ++gave_up_[engine];
  }
}

std::string BlockingPolicy::DisabledBy() const {
  if (!disabled()) return "";
  return absl::StrJoin(gave_up_, ", ",
                       [](std::string* out, const auto& engine) { out->append(engine.first); });
}

double SmClockMhz(const Stamp& first, const Stamp& second) {
  if (first.timer_ns == 0 || second.timer_ns == 0) return 0;
  if (second.timer_ns < first.timer_ns + kShortestWindowNs || second.cycles <= first.cycles) {
    return 0;
  }
  const double mhz = static_cast<double>(second.cycles - first.cycles) * 1000.0 /
                     static_cast<double>(second.timer_ns - first.timer_ns);
  return mhz >= 50 && mhz <= 10000 ? mhz : 0;
}

int64_t FlushBytes(int64_t l2_bytes) { return std::max<int64_t>(0, l2_bytes) * 2; }

int64_t BytesOfFlush(int64_t flush_bytes, int64_t read_next) {
  return flush_bytes - std::min(flush_bytes / 2, std::max<int64_t>(0, read_next));
}

bool IsHopeless(const TimedRun& first, double best_us) {
  const double gpu_us = first.gpu_us - first.host_us;
  return best_us > 0 && gpu_us > kHopelessUs && gpu_us > kHopelessFactor * best_us;
}

}  // namespace convtune::worker::timing
