// Conversions between the library's public values, the API's messages and the model.
#pragma once

#include <optional>
#include <string>

#include "client/cpp/include/convtune/resolver.h"
#include "convtune/v1/tuning_service.pb.h"
#include "proto/model/environment.h"
#include "proto/model/tuning/candidate.h"

namespace convtune::client {

// Returns the field and the rule that it breaks; empty if none does.
std::string RuleBroken(const Constraints& constraints);
convtune::Constraints ToModel(const Constraints& constraints);
// Nullopt if a field breaks its rule: `broken` then names both.
std::optional<convtune::Environment> ToModel(const Environment& program, std::string* broken);
// Returns the request without its problems.
v1::BatchGetRequest ToRequest(const std::string& environment, const Environment& program,
                              const Constraints& constraints);

Environment ToEnvironment(const convtune::Environment& environment);
Environment ToEnvironment(const v1::Environment& environment);

Candidate ToCandidate(const convtune::Candidate& candidate);
Candidate ToCandidate(const v1::Candidate& candidate);
// Leaves the result's environment empty.
Result ToResult(const v1::BatchGetResult& outcome);

}  // namespace convtune::client
