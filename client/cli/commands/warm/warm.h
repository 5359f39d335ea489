// MostGainFirst orders problems so that little time for tuning gains the most.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "client/cli/app/program.h"
#include "client/cli/calls/answers.h"
#include "proto/convert/problem_list.h"

namespace convtune::cli::commands::warm {

app::NewVerb NewWarmCommand;

// First choices of cuDNN for a problem, by the problem's text: of modes A and B,
// and of other versions, GPUs and profiles. Each is a candidate's text.
using FirstChoices = std::map<std::string, std::vector<std::string>>;

// Adds the first choices of modes A and B that can be built.
void AddModeChoices(const calls::TuningMap& tunings, FirstChoices* choices);
// Adds the first choice of each tuning, which is another environment's.
void AddStockChoices(const calls::TuningMap& tunings, FirstChoices* choices);

// Returns how much the choices differ: 0 if all are the same or there is at most one,
// 1 if no two are the same.
double Disagreement(const std::vector<std::string>& choices);

// Distinct problems by count x arithmetic x (1 + Disagreement), the largest first;
// between equals in the order given.
std::vector<ProblemRow> MostGainFirst(const std::vector<ProblemRow>& rows,
                                      const FirstChoices& choices);

}  // namespace convtune::cli::commands::warm
