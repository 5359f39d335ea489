// Variants of a convolution, and what the daemon's database holds of them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/cli/app/context.h"
#include "convtune/v1/tuning_service.pb.h"
#include "proto/base/clock.h"
#include "proto/convert/problem_list.h"

namespace convtune::cli::calls {

// The problem with what is set in `overrides` in place of its own. nullopt if that
// is no problem.
std::optional<ConvProblem> Vary(const ConvProblem& problem, const ProblemOverrides& overrides);

// Tunings by the problem's text.
using TuningMap = std::map<std::string, v1::Tuning>;

// Adds the tunings of `rows`, with all of their candidates, to `tunings`. A problem
// without one is left out, as are those that are not asked for by `end`. Errors are
// the daemon's.
absl::Status GetTunings(app::Context& context, const std::string& environment,
                        const std::vector<ProblemRow>& rows, TuningMap* tunings,
                        SteadyTime end = SteadyTime::InfiniteFuture());

}  // namespace convtune::cli::calls
