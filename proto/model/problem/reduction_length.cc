#include "proto/model/problem/reduction_length.h"

#include <cstddef>
#include <vector>

namespace convtune {
namespace {

int64_t Product(const std::vector<int64_t>& values, size_t first) {
  int64_t product = 1;
  for (size_t i = first; i < values.size(); ++i) product *= values[i];
  return product;
}

}  // namespace

int64_t ProductsPerElement(const ConvProblem& problem) {
  switch (problem.operation()) {
    case Operation::kBwdData:
      return problem.w_dims()[0] / problem.groups() * Product(problem.w_dims(), 2);
    case Operation::kBwdFilter:
      return problem.y_dims()[0] * Product(problem.y_dims(), 2);
    case Operation::kFwd:
      break;
  }
  return Product(problem.w_dims(), 1);
}

double MultiplyAdds(const ConvProblem& problem) {
  // The same for each operation.
  double count = 1;
  for (const int64_t dim : problem.y_dims()) count *= static_cast<double>(dim);
  return count * static_cast<double>(Product(problem.w_dims(), 1));
}

}  // namespace convtune
