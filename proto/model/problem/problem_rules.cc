#include "proto/model/problem/problem_rules.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "proto/base/strings.h"

namespace convtune::rules {
namespace {

std::string Indexed(std::string_view field, size_t index) { return Concat(field, "[", index, "]"); }

bool CheckRange(const std::vector<int64_t>& values, std::string_view field, int64_t min,
                int64_t max, std::string_view max_text, std::vector<Violation>* violations) {
  bool ok = true;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= min && values[i] <= max) continue;
    Add(violations, Indexed(field, i),
        Concat("must be from ", min, " to ", max_text, ", is ", values[i]));
    ok = false;
  }
  return ok;
}

bool CheckElementCount(const std::vector<int64_t>& dims, std::string_view field,
                       std::vector<Violation>* violations) {
  if (ElementCount(dims) <= kMaxElements) return true;
  Add(violations, field, "must hold at most 2^48 elements");
  return false;
}

}  // namespace

void Add(std::vector<Violation>* violations, std::string_view field, std::string_view rule) {
  violations->push_back({std::string(field), std::string(rule)});
}

int64_t CappedProduct(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  return a > kMaxElements / b ? kMaxElements + 1 : a * b;
}

int64_t ElementCount(const std::vector<int64_t>& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, CappedProduct);
}

int64_t Extent(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides) {
  int64_t extent = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    extent = std::min(extent + CappedProduct(dims[i] - 1, strides[i]), kMaxElements + 1);
  }
  return extent;
}

bool CheckDims(std::vector<int64_t>* x_dims, std::vector<int64_t>* w_dims,
               std::vector<Violation>* violations) {
  bool ok = true;
  if (x_dims->size() < 3 || x_dims->size() > 5) {
    Add(violations, "x_dims",
        Concat("must have 3 to 5 entries (N, C, spatial), has ", x_dims->size()));
    ok = false;
  }
  if (ok && w_dims->size() != x_dims->size()) {
    Add(violations, "w_dims",
        Concat("must have as many entries as x_dims (", x_dims->size(), "), has ", w_dims->size()));
    ok = false;
  } else if (!ok && (w_dims->size() < 3 || w_dims->size() > 5)) {
    Add(violations, "w_dims",
        Concat("must have 3 to 5 entries (K, C/groups, spatial), has ", w_dims->size()));
  }
  if (x_dims->size() <= 5) ok &= CheckRange(*x_dims, "x_dims", 1, kMaxDim, "2^31-1", violations);
  if (w_dims->size() <= 5) ok &= CheckRange(*w_dims, "w_dims", 1, kMaxDim, "2^31-1", violations);
  if (!ok) return false;
  ok &= CheckElementCount(*x_dims, "x_dims", violations);
  ok &= CheckElementCount(*w_dims, "w_dims", violations);
  if (x_dims->size() == 3) {
    x_dims->insert(x_dims->begin() + 2, 1);
    w_dims->insert(w_dims->begin() + 2, 1);
  }
  return ok;
}

bool SpreadSpatial(std::vector<int64_t>* values, std::string_view field, int typed_rank,
                   int64_t absent, int64_t min, std::vector<Violation>* violations) {
  const auto rank = static_cast<size_t>(typed_rank);
  if (values->size() > 1 && values->size() != rank) {
    Add(violations, field,
        Concat("must have 1 entry or one for each of the ", rank, " spatial dimensions, has ",
               values->size()));
    return false;
  }
  if (!CheckRange(*values, field, min, kMaxDim, "2^31-1", violations)) return false;
  if (values->empty()) values->push_back(absent);
  if (values->size() == 1) values->resize(rank, values->front());
  if (rank == 1) values->insert(values->begin(), absent);
  return true;
}

void CheckGroups(int64_t groups, const std::vector<int64_t>& x_dims,
                 const std::vector<int64_t>& w_dims, std::vector<Violation>* violations) {
  if (groups < 1 || groups > kMaxDim) {
    return Add(violations, "groups", Concat("must be from 1 to 2^31-1, is ", groups));
  }
  if (x_dims[1] % groups != 0) {
    Add(violations, "groups",
        Concat("must divide the ", x_dims[1], " channels of x_dims[1], is ", groups));
  } else if (w_dims[1] != x_dims[1] / groups) {
    Add(violations, "w_dims[1]",
        Concat("must be C/groups = ", x_dims[1], "/", groups, " = ", x_dims[1] / groups, ", is ",
               w_dims[1]));
  }
  if (w_dims[0] % groups != 0) {
    Add(violations, "groups",
        Concat("must divide the ", w_dims[0], " filters of w_dims[0], is ", groups));
  }
}

std::vector<int64_t> OutputDims(const std::vector<int64_t>& x_dims,
                                const std::vector<int64_t>& w_dims,
                                const std::vector<int64_t>& pad_low,
                                const std::vector<int64_t>& pad_high,
                                const std::vector<int64_t>& strides,
                                const std::vector<int64_t>& dilations, int typed_rank,
                                std::vector<Violation>* violations) {
  std::vector<int64_t> y_dims = {x_dims[0], w_dims[0]};
  // Indexes in messages are those of the list that the caller typed.
  const size_t inserted = typed_rank == 1 ? 1 : 0;
  bool ok = true;
  for (size_t i = 0; i + 2 < x_dims.size(); ++i) {
    const int64_t padded = x_dims[i + 2] + pad_low[i] + pad_high[i];
    const int64_t filter = dilations[i] * (w_dims[i + 2] - 1) + 1;
    const int64_t size =
        OutputSize(x_dims[i + 2], pad_low[i], pad_high[i], w_dims[i + 2], strides[i], dilations[i]);
    if (size < 1) {
      Add(violations, Indexed("x_dims", i + 2 - inserted),
          Concat("output vanishes: ", padded, " elements with padding are fewer than the ", filter,
                 " that the dilated filter spans"));
      ok = false;
    } else if (size > kMaxDim) {
      Add(violations, Indexed("x_dims", i + 2 - inserted),
          Concat("output must be at most 2^31-1, is ", size));
      ok = false;
    }
    y_dims.push_back(size);
  }
  if (ok && ElementCount(y_dims) > kMaxElements) {
    Add(violations, "x_dims", "output must hold at most 2^48 elements");
    ok = false;
  }
  if (!ok) y_dims.clear();
  return y_dims;
}

void CheckStrides(std::vector<int64_t>* strides, std::string_view field,
                  const std::vector<int64_t>& dims, int typed_rank,
                  std::vector<Violation>* violations) {
  const auto typed = static_cast<size_t>(typed_rank) + 2;
  if (strides->size() != typed) {
    return Add(violations, field,
               Concat("must have one entry for each of the ", typed, " dimensions, has ",
                      strides->size()));
  }
  if (!CheckRange(*strides, field, 1, kMaxElements, "2^48", violations)) return;
  if (typed_rank == 1) strides->insert(strides->begin() + 2, 1);

  std::vector<size_t> order;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] > 1) order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return (*strides)[a] < (*strides)[b]; });
  for (size_t i = 1; i < order.size(); ++i) {
    const size_t inner = order[i - 1];
    if ((*strides)[order[i]] < CappedProduct((*strides)[inner], dims[inner])) {
      return Add(violations, field,
                 Concat("must not overlap: stride ", (*strides)[order[i]], " is less than ",
                        (*strides)[inner], " times the size ", dims[inner]));
    }
  }
  if (Extent(dims, *strides) > kMaxElements) {
    Add(violations, field, "must span at most 2^48 elements");
  }
}

std::vector<int64_t> PackedStrides(const std::vector<int64_t>& dims, TensorLayout layout) {
  std::vector<int64_t> strides(dims.size());
  convtune::PackedStrides(dims.data(), static_cast<int>(dims.size()), layout == TensorLayout::kNhwc,
                          strides.data());
  return strides;
}

}  // namespace convtune::rules
