#pragma once

#include <string>
#include <vector>

#include "convtune/v1/tuning.pb.h"

namespace convtune {

// Why `answer` is what it is, one sentence a line. `candidates` are all of the
// tuning's. Says nothing that they do not show.
std::vector<std::string> ExplainWinner(
    const v1::Answer& answer, const google::protobuf::RepeatedPtrField<v1::Candidate>& candidates);

// Why the race between the candidates ended, and how the card was meanwhile;
// nothing where nothing was timed.
std::vector<std::string> ExplainRace(const v1::Tuning& tuning);

}  // namespace convtune
