// The text form of a problem: what is parsed prints as its canonical text, and
// that text parses back to the same problem.
#include "proto/model/problem/conv_problem.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using convtune::ConvProblem;
  const auto problem = ConvProblem::Parse(convtune::fuzz::ToString(data, size));
  if (!problem.ok()) {
    convtune::fuzz::Require(!problem.status().message().empty());
    return 0;
  }
  const std::string text = problem->ToText();
  const auto again = ConvProblem::Parse(text);
  convtune::fuzz::Require(again.ok() && *again == *problem && again->ToText() == text);
  convtune::fuzz::Require(problem->TensorBytes() > 0);
  return 0;
}
