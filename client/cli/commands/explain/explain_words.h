// Explains a tuning in words.
#pragma once

#include <string>
#include <vector>

#include "convtune/v1/tuning.pb.h"

namespace convtune::cli {

// The stock choice (StockIndex) of callers of `api`; nullptr if that is not known.
const v1::Candidate* StockOf(const google::protobuf::RepeatedPtrField<v1::Candidate>& candidates,
                             v1::Api api);

// Why `answer` is what it is, one sentence a line. `candidates` are all of the
// tuning's; `api` is what the caller can use, whose stock choice the winner is
// compared with. Says nothing that they do not show.
std::vector<std::string> ExplainWinner(
    const v1::Answer& answer, const google::protobuf::RepeatedPtrField<v1::Candidate>& candidates,
    v1::Api api = v1::API_ANY);

// Which instruments of the worker do not work; then, where something was timed,
// why the race between the candidates ended, and how the GPU was meanwhile.
std::vector<std::string> ExplainRace(const v1::Tuning& tuning);

}  // namespace convtune::cli
