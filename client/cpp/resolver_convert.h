// Conversions between the library's public values, the API's messages and the model.
#pragma once

#include <optional>
#include <string>

#include "client/cpp/include/convtune/resolver.h"
#include "convtune/v1/tuning_service.pb.h"
#include "proto/model/environment.h"
#include "proto/model/tuning/constraints.h"

namespace convtune::client {

// The field and the rule that it breaks; empty if none does.
std::string RuleBroken(const Constraints& constraints);
convtune::Constraints ToModel(const Constraints& constraints);
// Nullopt: `why` is the field and the rule that it breaks.
std::optional<convtune::Environment> ToModel(const Environment& program, std::string* why);
// Without problems.
v1::BatchGetRequest ToRequest(const std::string& environment, const Environment& program,
                              const Constraints& constraints);

Environment ToEnvironment(const convtune::Environment& environment);
Environment ToEnvironment(const v1::Environment& environment);

Choice ToChoice(const Candidate& candidate);
Choice ToChoice(const v1::Candidate& candidate);
// Without the environment.
Result ToResult(const v1::BatchGetResult& outcome);

}  // namespace convtune::client
