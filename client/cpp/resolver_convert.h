// Conversions between the library's public values, the API's messages and the model.
#pragma once

#include "client/cpp/include/convtune/resolver.h"
#include "convtune/v1/tuning_service.pb.h"
#include "proto/model/tuning/constraints.h"

namespace convtune::client {

// The field and the rule that it breaks; empty if none does.
std::string RuleBroken(const Constraints& constraints);
convtune::Constraints ToModel(const Constraints& constraints);
// Without problems.
v1::BatchGetRequest ToRequest(const std::string& environment, const Constraints& constraints);

Choice ToChoice(const Candidate& candidate);
Choice ToChoice(const v1::Candidate& candidate);
Result ToResult(const v1::BatchGetResult& outcome);

}  // namespace convtune::client
