// Conversions between the model's values and the binary keys and choices.
#pragma once

#include "absl/status/statusor.h"
#include "db/snapshot/keys.h"
#include "db/snapshot/snapshot.h"
#include "proto/model/environment.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/candidate.h"

namespace convtune::snapshot {

// INVALID_ARGUMENT for more epilogue operations than the key holds.
absl::StatusOr<ProblemKey> ToKey(const ConvProblem& problem);
// The problem of a key from outside. INVALID_ARGUMENT names the field and the
// rule; also where the key is not in canonical form.
absl::StatusOr<ConvProblem> ToProblem(const ProblemKey& key);

// INVALID_ARGUMENT for a model or MIG profile that is too long and for numbers
// that do not fit.
absl::StatusOr<EnvironmentKey> ToKey(const Environment& environment);
// gpu_model is then the slug.
absl::StatusOr<Environment> ToEnvironment(const EnvironmentKey& key);

// `stored` is one of the view's. The result has its id, notes, workspace_bytes, median_us and the
// status that follows from that time; a snapshot has nothing else.
Candidate ToCandidate(const SnapshotView& view, const SnapshotCandidate& stored);

}  // namespace convtune::snapshot
