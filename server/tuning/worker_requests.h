// Functions that build requests to a worker, and read its replies, leaving out values that are
// impossible.
#pragma once

#include <cstdint>
#include <optional>

#include "convtune/worker/worker.pb.h"
#include "proto/base/clock.h"
#include "proto/model/tuning/candidate.h"
#include "proto/model/tuning/conditions.h"
#include "server/decision/samples.h"
#include "server/jobs/work_spec.h"

namespace convtune::tuning {

worker::v1::Request OpenRequest(const jobs::WorkSpec& spec, bool measures);

// The time budget of a request that is to be over by `end`: 1 at least, since 0 is none.
int64_t MillisUntil(SteadyTime end);

// nullopt of one that failed, or whose time cannot be. An unknown clock is 0.
std::optional<decision::RunSample> ReadSample(const worker::v1::Sample& sample);

// Conditions as the worker reports them; nothing is known where it cannot be read, and of the
// GPU where NVML could not be asked.
Conditions ReadConditions(const v1::Conditions& look);

// nullopt if it is no candidate. One that the legacy search refused, or
// whose numbers cannot be, is kUnsupported, any other kSkippedBudget until
// something is done with it.
std::optional<Candidate> ReadListed(const v1::Candidate& record);

}  // namespace convtune::tuning
