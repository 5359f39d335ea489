// A ProfileListing is what one cuDNN offers for problems on a GPU that a profile
// describes: asked of a convtune-worker that loads that cuDNN.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/commands/upgrade/cudnn_cache.h"
#include "proto/model/environment.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/candidate.h"

namespace convtune::cli::commands::upgrade {

// A problem, and the candidate that is stored for it.
struct AskedProblem {
  ConvProblem problem;
  int64_t count = 1;   // how often the workload runs it
  std::string winner;  // text form; empty: none is stored
};

// Value type.
struct ListedProblem {
  std::string error;              // why nothing is known of it: the worker died; empty: it did not
  std::string refusal;            // why cuDNN offers nothing, in its words; empty: it does
  std::vector<Candidate> listed;  // by modes A, B and FALLBACK, in their order
  std::optional<size_t> first;    // the first of `listed` that can be built
  std::optional<bool> winner_builds;  // absent: no winner is stored
};

struct ProfileListing {
  Environment environment;              // as the worker says it
  std::vector<ListedProblem> problems;  // in the order asked for
};

// Starts `worker` with that cuDNN and the profile's file, and asks for all of
// them. A worker that dies is started again for the next problem. Errors:
// FAILED_PRECONDITION in the worker's words if none can be started, and where the
// worker has another version than `cudnn` says.
absl::StatusOr<ProfileListing> ListOnProfile(const std::string& worker, const CudnnFolder& cudnn,
                                             const std::string& profile_file,
                                             const std::vector<AskedProblem>& problems);

}  // namespace convtune::cli::commands::upgrade
