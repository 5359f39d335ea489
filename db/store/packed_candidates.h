// A tuning's candidates, and their samples, as bytes: two rows of the database
// instead of three for each candidate. The format is in db/README.md; it is
// persisted, so a change of it is a new version of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "proto/model/tuning/tuning.h"

namespace convtune::db::store {

// Candidates without their samples, and how the race between them went.
std::string PackCandidates(const Tuning& tuning);
// Replaces what PackCandidates took; false, with `tuning` in any state, if the
// bytes are not of that format. Any bytes are safe to read.
bool UnpackCandidates(std::string_view bytes, Tuning* tuning);

// Empty if no candidate has samples.
std::string PackSamples(const std::vector<Candidate>& candidates);
// Into the candidates at their positions; false, with `candidates` in any state,
// if the bytes are not of that format or name a position that there is not.
bool UnpackSamples(std::string_view bytes, std::vector<Candidate>* candidates);
// Position of the last candidate that has samples; -1 if none has.
int LastPositionWithSamples(const std::vector<Candidate>& candidates);

}  // namespace convtune::db::store
