// JudgeOutput says whether a candidate computes what it should, DoubtedFaults whether
// that can be told.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/candidate.h"

namespace convtune::worker::v1 {
class Checked;
}  // namespace convtune::worker::v1

namespace convtune::decision {

// Largest error, as in Candidate::error, that rounding explains, given what the
// problem's types and the candidate's notes allow; the formula and its sources
// are in README.md. `magnitude`: as the worker reports it. At most 0.25: what is further
// away is wrong whatever it was computed with.
double ErrorBound(const ConvProblem& problem, const Candidate& candidate, double magnitude);

// An OutputVerdict says whether a candidate's output is right.
struct OutputVerdict {
  // kWrongResult, kNotFinite or kOutOfBounds; nullopt: it is right.
  std::optional<QuarantineReason> fault;
  std::string message;  // what is wrong, for people
  // Its f32 inputs are rounded to TF32, which its notes do not say: it is right
  // if they do.
  bool uses_tf32 = false;
};

// Judges what a worker reports of the candidate's output.
OutputVerdict JudgeOutput(const ConvProblem& problem, const Candidate& candidate,
                          const worker::v1::Checked& report);

// One candidate in the vote on whether candidates are wrong or what checks them.
struct Vote {
  CandidateId candidate;
  bool is_stock = false;  // the first of its API's heuristic that ran
  std::optional<QuarantineReason> fault;
};

// Decides whether the candidates are at fault or the check that reports them, as "Engines vote"
// in README.md has it; each kind of fault is judged alone. Returns for each vote whether its
// fault is doubted; false for a vote without a fault.
std::vector<bool> DoubtedFaults(const std::vector<Vote>& votes);

// A Doubt counts the candidates that could not be judged.
struct Doubt {
  int candidates = 0;          // that could not be judged
  bool none_is_right = false;  // and no other was found to be right
  bool graph_stock = false;    // the graph API's stock choice is among them
  bool legacy_stock = false;   // the legacy API's is
  std::string why;             // for people
};

}  // namespace convtune::decision
