// Finding out whether a candidate is what a worker died of.
#pragma once

#include "absl/status/status.h"
#include "proto/model/candidate.h"
#include "server/tuner/tuning_queue.h"
#include "server/tuner/worker_client.h"

namespace convtune {

// Prepares, checks and times nothing but `suspect`. OK if the worker survives it,
// whether the candidate works or not.
absl::Status RunAlone(const WorkSpec& spec, const CandidateId& suspect, WorkerClient* client);

}  // namespace convtune
