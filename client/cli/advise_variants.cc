#include "client/cli/advise_variants.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace convtune {
namespace {

std::optional<ConvProblem> Change(const ConvProblem& problem, int64_t batch, TensorLayout layout,
                                  DataType data_type) {
  ConvProblemSpec spec;
  spec.operation = problem.operation();
  spec.x_dims = problem.x_dims();
  spec.x_dims[0] = batch;
  spec.w_dims = problem.w_dims();
  spec.pad_low = problem.pad_low();
  spec.pad_high = problem.pad_high();
  spec.strides = problem.strides();
  spec.dilations = problem.dilations();
  spec.groups = problem.groups();
  spec.data_type = data_type;
  spec.layout = layout;
  spec.mode = problem.mode();
  spec.epilogue = problem.epilogue();
  spec.alignment_bytes = problem.alignment_bytes();
  if (problem.sm_count_target() != 0) spec.sm_count_target = problem.sm_count_target();
  absl::StatusOr<ConvProblem> changed = ConvProblem::Create(spec);
  return changed.ok() ? std::optional<ConvProblem>(*std::move(changed)) : std::nullopt;
}

void AddVariant(const ConvProblem& problem, bool asked, std::vector<Variant>* variants) {
  for (const Variant& known : *variants) {
    if (known.problem == problem) return;
  }
  const int64_t batch = problem.x_dims()[0];
  variants->push_back({problem, batch, false, asked});
  if (problem.data_type() == DataType::kF32) variants->push_back({problem, batch, true, false});
}

double Product(const std::vector<int64_t>& dims, size_t from) {
  return std::accumulate(
      dims.begin() + static_cast<std::ptrdiff_t>(from), dims.end(), 1.0,
      [](double product, int64_t dim) { return product * static_cast<double>(dim); });
}

double TimeOf(const v1::BatchGetResult& result) {
  return result.has_answer() ? result.answer().winner().median_us() : 0;
}

}  // namespace

absl::StatusOr<std::vector<Variant>> MakeVariants(const ConvProblem& problem,
                                                  const std::vector<DataType>& data_types,
                                                  const std::vector<int64_t>& batches) {
  if (problem.layout() == TensorLayout::kStrided) {
    return absl::InvalidArgumentError("PROBLEM: must be nchw or nhwc, without strides of its own");
  }
  std::vector<DataType> types = {problem.data_type()};
  for (const DataType type : data_types) {
    if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
  }
  const std::vector<int64_t> own = {problem.x_dims()[0]};
  std::vector<Variant> variants;
  AddVariant(problem, true, &variants);
  for (const int64_t batch : batches.empty() ? own : batches) {
    for (const TensorLayout layout : {TensorLayout::kNchw, TensorLayout::kNhwc}) {
      for (const DataType type : types) {
        const std::optional<ConvProblem> changed = Change(problem, batch, layout, type);
        if (changed) AddVariant(*changed, false, &variants);
      }
    }
  }
  return variants;
}

double FloatingPointOperations(const ConvProblem& problem) {
  return 2 * Product(problem.y_dims(), 0) * Product(problem.w_dims(), 1);
}

Advice Advise(const Variant& variant, const v1::BatchGetResult& result, const Variant& asked,
              const v1::BatchGetResult& asked_result) {
  Advice advice;
  advice.time_us = TimeOf(result);
  if (!(advice.time_us > 0)) return advice;
  // 1e6 per microsecond is 1e12 per second.
  advice.tflops = FloatingPointOperations(variant.problem) / advice.time_us / 1e6;
  advice.gbytes = static_cast<double>(variant.problem.TensorBytes()) / advice.time_us / 1e3;
  const double asked_us = TimeOf(asked_result);
  advice.speed_up = asked_us / static_cast<double>(asked.batch) /
                    (advice.time_us / static_cast<double>(variant.batch));
  return advice;
}

}  // namespace convtune
