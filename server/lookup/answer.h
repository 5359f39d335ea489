// MakeAnswer gives the answer of a tuning under constraints. Pure.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "convtune/v1/tuning_service.pb.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/candidate.h"
#include "proto/model/tuning/tuning.h"

namespace convtune::lookup {

struct IndexedTuning;

// The outcome that a tuning of the problem has under constraints; a miss (NO_CANDIDATE) if no
// candidate keeps to them. `pin` may be nullptr; an expired one is ignored, another overrides the
// ranking and the constraints, and says so. The result's tuning_id and problem_text are not set.
v1::BatchGetResult MakeAnswer(const IndexedTuning& indexed, const Pin* pin,
                              const Constraints& constraints, const ConvProblem& problem,
                              absl::Time now);

// A miss; its tuning_id and problem_text are not set either.
v1::BatchGetResult MakeMiss(v1::MissReason reason, const std::string& message);

}  // namespace convtune::lookup
