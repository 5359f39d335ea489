// OpenRequest opens a problem in a worker, ReadListed reads a candidate that the
// worker lists for it.
#pragma once

#include <optional>
#include <vector>

#include "convtune/worker/worker.pb.h"
#include "proto/model/tuning/candidate.h"
#include "server/jobs/work_spec.h"

namespace convtune::tuning {

worker::v1::OpenProblem OpenRequest(const jobs::WorkSpec& spec, bool measures);

// nullopt if it is no candidate. One that the legacy search refused, or
// whose numbers cannot be, is kUnsupported, any other kSkippedBudget until
// something is done with it.
std::optional<Candidate> ReadListed(const v1::Candidate& record);

}  // namespace convtune::tuning
