// Pure functions that plan a sample and judge its times. The method is in
// server/worker/README.md.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "server/worker/backend.h"

namespace convtune::worker::timing {

struct SamplePlan {
  int runs = 1;                  // behind one blocking kernel; their mean is the sample
  absl::Duration block_timeout;  // after which the stream goes on by itself
};

// Most runs behind one blocking kernel. A stream takes about a thousand launches before
// the next one waits, which would never end behind a blocking kernel; a run is at most 16
// of them or so, preparation included.
inline constexpr int kMostRuns = 16;
// The time that the runs of a sample add up to, unless somebody asks for less.
inline constexpr int kSampleUs = 50;

// Short candidates run several times, since an event's time comes in steps of
// about half a microsecond (CUDA Runtime API, cudaEventElapsedTime). The limit
// leaves the host 50 times what it is expected to need for queueing. `expected`: a run of
// the candidate before; 0 for what is not known of it. `sample_us`: the time that the runs of
// a sample add up to, about.
SamplePlan PlanSample(const TimedRun& expected, int sample_us = kSampleUs);

// A BlockingPolicy says which runs of a problem, all launches or all replays, are put behind a
// blocking kernel, as "The blocking kernel gives up" in README.md has it. Not thread-safe.
class BlockingPolicy {
 public:
  static constexpr int kAttempts = 2;
  static constexpr int kCandidates = 2;
  static constexpr size_t kEngines = 3;

  // Returns how many attempts behind a blocking kernel a sample is worth; 0: none.
  // `gave_up_before`: the blocking kernels of this candidate did. `engine` stands for a legacy
  // algorithm too.
  int Attempts(const std::string& engine, bool gave_up_before) const;
  // A sample that was worth attempts was taken behind a blocking kernel, or not.
  void Took(const std::string& engine, bool blocked);
  // The engines after which no more are tried, as "eng1, eng2, eng3"; empty: they are tried.
  std::string DisabledBy() const;

 private:
  bool disabled() const { return worked_.empty() && gave_up_.size() >= kEngines; }

  std::set<std::string> worked_;        // engines
  std::map<std::string, int> gave_up_;  // candidates of each engine that has not worked
};

// SM clock in MHz between two stamps of the same SM; 0 if it cannot be said:
// one is missing, they are less than 5 us apart, or what they say is no clock
// of a GPU (below 50 or above 10000 MHz), as when one of the counters began
// anew between them.
double SmClockMhz(const Stamp& first, const Stamp& second);

// Bytes to read so that nothing of a working set is left in an L2 cache of
// `l2_bytes`: twice its size, since it is not known which line a miss
// replaces. 0: there is none.
int64_t FlushBytes(int64_t l2_bytes);
// Bytes of a flush of `flush_bytes` that are left to read where `read_next` bytes of
// inputs are read behind it, which drive lines out as well: half of it at least,
// since what of them is in the cache already drives nothing out.
int64_t BytesOfFlush(int64_t flush_bytes, int64_t read_next);

// True if a candidate whose first run took this long is given up after it:
// without the time of its launch, in which code may have been loaded, it is
// beyond 50 ms and beyond 10 times `best_us`, the best time so far (0: there is
// none).
bool IsHopeless(const TimedRun& first, double best_us);

}  // namespace convtune::worker::timing
