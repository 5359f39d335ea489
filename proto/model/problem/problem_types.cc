// Which element types go together.
#include <algorithm>
#include <string>

#include "proto/base/strings.h"
#include "proto/model/problem/problem_rules.h"

namespace convtune::rules {
namespace {

using enum DataType;

// What cuDNN's convolutions take; the first of a list is the default.
struct TypeRule {
  DataType data;
  std::vector<DataType> outputs;
  std::vector<DataType> computes;
};

const TypeRule* FindRule(DataType type) {
  static const auto* const kRules = new std::vector<TypeRule>{
      {kF64, {kF64}, {kF64}},
      {kF32, {kF32}, {kF32}},
      {kF16, {kF16, kF32}, {kF32, kF16}},
      {kBF16, {kBF16, kF32}, {kF32}},
      {kI8, {kI32, kI8, kF32}, {kI32}},
      {kE4M3, {kE4M3, kE5M2, kF16, kBF16, kF32}, {kF32}},
      {kE5M2, {kE5M2, kE4M3, kF16, kBF16, kF32}, {kF32}},
  };
  const auto rule = std::find_if(kRules->begin(), kRules->end(),
                                 [type](const TypeRule& r) { return r.data == type; });
  return rule == kRules->end() ? nullptr : &*rule;
}

void CheckIn(DataType type, const std::vector<DataType>& allowed, std::string_view field,
             DataType data, std::vector<Violation>* violations) {
  if (std::find(allowed.begin(), allowed.end(), type) != allowed.end()) return;
  std::string names;
  for (const DataType t : allowed) AppendTo(&names, names.empty() ? "" : " or ", Name(t));
  Add(violations, field, Concat("must be ", names, " for ", Name(data), ", is ", Name(type)));
}

void CheckEpilogue(const ConvProblemSpec& spec, std::vector<Violation>* violations) {
  using enum EpilogueOp;
  if (spec.epilogue.empty()) return;
  const std::vector<EpilogueOp> forms[] = {{kBias}, {kBias, kRelu}, {kAdd, kBias, kRelu}};
  if (std::find(std::begin(forms), std::end(forms), spec.epilogue) == std::end(forms)) {
    Add(violations, "epilogue", "must be bias, bias+relu or add+bias+relu");
  }
  if (spec.operation && *spec.operation != Operation::kFwd) {
    Add(violations, "epilogue",
        Concat("must be left out for ", Name(*spec.operation), ": forward only"));
  }
}

}  // namespace

std::optional<Types> ResolveTypes(const ConvProblemSpec& spec, std::vector<Violation>* violations) {
  const size_t before = violations->size();
  CheckEpilogue(spec, violations);
  const bool epilogue = !spec.epilogue.empty();
  const DataType data = spec.data_type.value_or(kF32);
  const TypeRule* const rule = FindRule(data);
  if (rule == nullptr) {
    Add(violations, "data_type",
        Concat("must be f64, f32, f16, bf16, i8, e4m3 or e5m2, is ", Name(data)));
    return std::nullopt;
  }
  if (data == kI8 && spec.operation && *spec.operation != Operation::kFwd) {
    Add(violations, "data_type",
        Concat("i8 must be forward only, operation is ", Name(*spec.operation)));
  }

  Types types;
  types.data = data;
  types.output = spec.output_type.value_or(data == kI8 && epilogue ? kI8 : rule->outputs.front());
  types.compute = spec.compute_type.value_or(rule->computes.front());
  types.intermediate = spec.intermediate_type.value_or(data == kF64 ? kF64 : kF32);
  CheckIn(types.output, rule->outputs, "output_type", data, violations);
  CheckIn(types.compute, rule->computes, "compute_type", data, violations);
  if (spec.intermediate_type && !epilogue) {
    Add(violations, "intermediate_type", "must be left out without an epilogue");
  } else if (data == kF64) {
    CheckIn(types.intermediate, {kF64}, "intermediate_type", data, violations);
  } else if (types.intermediate != data) {
    CheckIn(types.intermediate, {kF32, data}, "intermediate_type", data, violations);
  }
  return violations->size() == before ? std::optional(types) : std::nullopt;
}

}  // namespace convtune::rules
