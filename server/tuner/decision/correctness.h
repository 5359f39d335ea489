// Whether a candidate computes what it should.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/model/candidate.h"
#include "proto/model/conv_problem.h"

namespace convtune {

// What a worker saw of a candidate's output; see convtune.worker.Checked.
struct OutputReport {
  std::optional<double> error;
  double magnitude = 0;
  int64_t nonfinite = 0;
  std::string out_of_bounds;
};

// Largest error, as in Candidate::error, that rounding explains, given what the
// problem's types and the candidate's notes allow; the formula and its sources
// are in README.md. `magnitude`: of the report. At most 0.25: what is further
// away is wrong whatever it was computed with.
double ErrorBound(const ConvProblem& problem, const Candidate& candidate, double magnitude);

struct Verdict {
  std::string why;      // the result is wrong; empty if it is right
  bool certain = true;  // whatever the reference says: memory was overwritten
};

Verdict JudgeOutput(const ConvProblem& problem, const Candidate& candidate,
                    const OutputReport& report);

// True if the verdicts say more about the reference than about candidates: of
// two or more that were judged, more than half differ from it.
bool ReferenceIsDoubtful(const std::vector<Verdict>& verdicts);

}  // namespace convtune
