// A RaceRunner races the prepared candidates of an open problem in a worker.
#pragma once

#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"
#include "proto/model/tuning/candidate.h"
#include "proto/model/tuning/tuning.h"
#include "server/decision/race.h"
#include "server/supervisor/worker_client.h"

namespace convtune::tuning {

// Waits until no other process uses the GPU, `longest` at most, and looks
// every `period`. OK also if somebody still does, or NVML cannot be asked.
// Errors are the client's.
absl::Status WaitUntilIdle(absl::Duration longest, absl::Duration period,
                           supervisor::WorkerClient* client);

// Not thread-safe.
class RaceRunner {
 public:
  // All but `indexes` outlive it. Those of `candidates`, by the worker's index, that are of
  // `indexes`, which are kFinalized, take part. `warm_runs`, better than nothing, stand in for
  // samples where there was no time to take any.
  RaceRunner(std::vector<int> indexes, const std::map<int, worker::v1::Checked>& warm_runs,
             std::map<int, Candidate>* candidates, Tuning* tuning,
             supervisor::WorkerClient* client);

  // Runs the race until it is decided or `end` comes, and writes what it gave into the candidates,
  // and its stop reason (kNone if nobody could take part), rounds, conditions and cache state into
  // the tuning, also when it ends with an error. Errors are the client's.
  absl::Status Run(SteadyTime end);

  // Those that were still in it when it ended, by the worker's index.
  std::vector<int> finalists() const;

 private:
  absl::Status Rounds(SteadyTime end);
  absl::StatusOr<worker::v1::Outcome> RunStep(const decision::RaceStep& step, SteadyTime end);
  void Take(int index, const worker::v1::Sample& sample);
  void DropOtherKind();
  void WriteResults();

  supervisor::WorkerClient* const client_;
  std::map<int, Candidate>* const candidates_;
  const std::map<int, worker::v1::Checked>& warm_runs_;
  Tuning* const tuning_;
  std::vector<int> indexes_;                  // by number in the race
  std::map<int, size_t> numbers_;             // by index
  std::vector<std::vector<double>> host_us_;  // by number
  decision::Race race_;
};

}  // namespace convtune::tuning
