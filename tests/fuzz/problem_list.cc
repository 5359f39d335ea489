// Lists of problems: text, CSV or JSON lines, told apart by their content.
#include "proto/convert/problem_list.h"

#include <sstream>

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The first byte picks overrides.
  convtune::ProblemOverrides overrides;
  if (size > 0) {
    if ((data[0] & 1) != 0) overrides.operation = convtune::Operation::kBwdFilter;
    if ((data[0] & 2) != 0) overrides.data_type = convtune::DataType::kF16;
    if ((data[0] & 4) != 0) overrides.layout = convtune::TensorLayout::kNhwc;
    if ((data[0] & 8) != 0) overrides.batches = {32};
    ++data;
    --size;
  }
  std::istringstream in(convtune::fuzz::ToString(data, size));
  const convtune::ProblemList list = convtune::ReadProblemList(in, "list", overrides);
  convtune::fuzz::Require(!list.rows.empty() || !list.errors.empty());
  convtune::fuzz::Require(list.errors.size() <= 1000);
  for (const auto& row : list.rows) {
    convtune::fuzz::Require(row.count >= 1 && !row.source.empty());
  }
  for (const auto& error : list.errors) convtune::fuzz::Require(!error.message.empty());
  return 0;
}
