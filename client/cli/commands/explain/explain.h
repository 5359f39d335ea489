// Explains a tuning in words, for `convtune explain`.
#pragma once

#include <string>
#include <vector>

#include "client/cli/app/program.h"
#include "convtune/v1/tuning.pb.h"

namespace convtune::cli::commands::explain {

app::NewVerb NewExplainCommand;

// The stock choice (StockIndex) of callers of `api`; nullptr if that is not known.
const v1::Candidate* StockOf(const google::protobuf::RepeatedPtrField<v1::Candidate>& candidates,
                             v1::Api api);

// Explains why the winner of `answer` wins, one sentence a line. `candidates` are all
// of the tuning's. `api` is the API that the caller can use; the winner is compared
// with that API's stock choice.
std::vector<std::string> ExplainWinner(
    const v1::Answer& answer, const google::protobuf::RepeatedPtrField<v1::Candidate>& candidates,
    v1::Api api = v1::API_ANY);

// Names the instruments of the worker that do not work, and what failed in its runs. If something
// was timed, adds why the race between the candidates ended, and the state of the GPU meanwhile.
std::vector<std::string> ExplainRace(const v1::Tuning& tuning);

}  // namespace convtune::cli::commands::explain
