// Text forms of environments and candidates, as the worker, the database and
// requests carry them.
#include "proto/model/environment.h"
#include "proto/model/tuning/candidate.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text = convtune::fuzz::ToString(data, size);
  if (const auto environment = convtune::Environment::Parse(text); environment.ok()) {
    const auto again = convtune::Environment::Parse(environment->ToText());
    convtune::fuzz::Require(again.ok() && again->ToText() == environment->ToText());
  }
  if (const auto candidate = convtune::ParseCandidateId(text); candidate.ok()) {
    const auto again = convtune::ParseCandidateId(convtune::ToText(*candidate));
    convtune::fuzz::Require(again.ok() && *again == *candidate);
  }
  return 0;
}
