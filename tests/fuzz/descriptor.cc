// A convolution's descriptor, field by field, as requests carry it: one that
// breaks no rule comes back the same from each of its forms.
#include "convtune/v1/problem.pb.h"
#include "proto/model/problem/conv_problem.h"
#include "tests/fuzz/fuzz.h"

using convtune::ConvProblem;
using convtune::fuzz::Require;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  convtune::v1::ConvProblem proto;
  if (!proto.ParseFromArray(data, static_cast<int>(size))) return 0;
  std::vector<convtune::Violation> violations;
  const auto problem = ConvProblem::Create(proto, &violations, "problem");
  Require(problem.has_value() == violations.empty());
  for (const auto& violation : violations) {
    Require(violation.field.starts_with("problem") && !violation.rule.empty());
  }
  if (!problem.has_value()) return 0;
  Require(problem->TensorBytes() > 0);
  const auto from_proto = ConvProblem::Create(problem->ToProto(), &violations);
  Require(from_proto.has_value() && *from_proto == *problem);
  const auto from_text = ConvProblem::Parse(problem->ToText());
  Require(from_text.ok() && *from_text == *problem);
  return 0;
}
