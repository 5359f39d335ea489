// The rules behind ConvProblem::Create, in parts. Each function adds what is broken to
// `violations`; those that others build on say whether their part holds.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "proto/model/problem/conv_problem.h"
#include "proto/model/problem/tensor_rules.h"

namespace convtune::rules {

void Add(std::vector<Violation>* violations, std::string_view field, std::string_view rule);

// Product of two non-negative numbers, or kMaxElements + 1 if it is larger.
int64_t CappedProduct(int64_t a, int64_t b);
// Number of elements, or kMaxElements + 1 if there are more.
int64_t ElementCount(const std::vector<int64_t>& dims);
// Distance from the first to the last element plus one, capped likewise.
int64_t Extent(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides);

// Ranks, ranges and element counts of x and w. Where it holds, both lists have
// at least two spatial dimensions afterwards.
bool CheckDims(std::vector<int64_t>* x_dims, std::vector<int64_t>* w_dims,
               std::vector<Violation>* violations);

// A list of one value for each spatial dimension: empty is `absent`, one value
// is spread, each value is at least `min`. `typed_rank` is the spatial rank
// that the caller typed; 1 gives {absent, value}.
bool SpreadSpatial(std::vector<int64_t>* values, std::string_view field, int typed_rank,
                   int64_t absent, int64_t min, std::vector<Violation>* violations);

void CheckGroups(int64_t groups, const std::vector<int64_t>& x_dims,
                 const std::vector<int64_t>& w_dims, std::vector<Violation>* violations);

// N, K, spatial; empty if the output vanishes or is too large.
std::vector<int64_t> OutputDims(const std::vector<int64_t>& x_dims,
                                const std::vector<int64_t>& w_dims,
                                const std::vector<int64_t>& pad_low,
                                const std::vector<int64_t>& pad_high,
                                const std::vector<int64_t>& strides,
                                const std::vector<int64_t>& dilations, int typed_rank,
                                std::vector<Violation>* violations);

// Explicit strides of one tensor whose canonical dimensions are `dims`. Where
// it holds, the list has an entry for each of them.
void CheckStrides(std::vector<int64_t>* strides, std::string_view field,
                  const std::vector<int64_t>& dims, int typed_rank,
                  std::vector<Violation>* violations);

// Strides of a packed tensor; `layout` is kNchw or kNhwc.
std::vector<int64_t> PackedStrides(const std::vector<int64_t>& dims, TensorLayout layout);

struct Types {
  DataType data;
  DataType output;
  DataType compute;
  DataType intermediate;
};

// Fills in the defaults and checks the combination, the epilogue's form
// included.
std::optional<Types> ResolveTypes(const ConvProblemSpec& spec, std::vector<Violation>* violations);

}  // namespace convtune::rules
