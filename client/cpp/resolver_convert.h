// Conversions between the library's public values and the API's messages.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/include/convtune/resolver.h"
#include "convtune/v1/tuning_service.pb.h"
#include "proto/model/environment.h"
#include "proto/model/tuning/candidate.h"

namespace convtune::client {

// What a call asks of every problem: of a daemon by the request, of a snapshot by all three.
struct Terms {
  v1::BatchGetRequest request;  // without problems
  // The request's fields of these names.
  convtune::Environment program;
  convtune::Constraints constraints;
};

// INVALID_ARGUMENT names each field that breaks its rule, and the rule.
absl::StatusOr<Terms> MakeTerms(const std::string& environment, const Environment& program,
                                const Constraints& constraints);

Environment ToEnvironment(const v1::Environment& environment);

// `source` and `environment` say where the outcome comes from.
Result ToResult(const v1::BatchGetResult& outcome, Source source, const Environment& environment);

}  // namespace convtune::client
