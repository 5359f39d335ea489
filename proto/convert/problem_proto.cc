#include "proto/convert/problem_proto.h"

#include <set>
#include <string>
#include <utility>

#include "proto/base/strings.h"

namespace convtune {
namespace {

std::string Path(std::string_view prefix, std::string_view field) {
  return prefix.empty() ? std::string(field) : Concat(prefix, ".", field);
}

// An enum field whose model numbers are those of the proto; 0 is left out.
template <typename E, typename ProtoE>
std::optional<E> EnumFrom(ProtoE value, bool (*valid)(int), std::string_view field,
                          std::string_view prefix, std::vector<Violation>* violations) {
  if (value == 0) return std::nullopt;
  if (!valid(value)) {
    violations->push_back({Path(prefix, field), Concat("unknown enum number ", value)});
    return std::nullopt;
  }
  return static_cast<E>(value);
}

template <typename Repeated>
std::vector<int64_t> ListFrom(const Repeated& repeated) {
  return {repeated.begin(), repeated.end()};
}

template <typename Repeated>
void ListTo(const std::vector<int64_t>& values, Repeated* repeated) {
  repeated->Add(values.begin(), values.end());
}

}  // namespace

ConvProblemSpec SpecFromProto(const v1::ConvProblem& proto, std::string_view prefix,
                              std::vector<Violation>* violations) {
  ConvProblemSpec spec;
  const auto type = [&](v1::DataType value, std::string_view field) {
    return EnumFrom<DataType>(value, v1::DataType_IsValid, field, prefix, violations);
  };
  spec.operation = EnumFrom<Operation>(proto.operation(), v1::Operation_IsValid, "operation",
                                       prefix, violations);
  spec.x_dims = ListFrom(proto.x_dims());
  spec.w_dims = ListFrom(proto.w_dims());
  spec.pad_low = ListFrom(proto.pad_low());
  spec.pad_high = ListFrom(proto.pad_high());
  spec.strides = ListFrom(proto.strides());
  spec.dilations = ListFrom(proto.dilations());
  if (proto.groups() != 0) spec.groups = proto.groups();
  spec.data_type = type(proto.data_type(), "data_type");
  spec.output_type = type(proto.output_type(), "output_type");
  spec.compute_type = type(proto.compute_type(), "compute_type");
  spec.intermediate_type = type(proto.intermediate_type(), "intermediate_type");
  spec.layout = EnumFrom<TensorLayout>(proto.layout(), v1::TensorLayout_IsValid, "layout", prefix,
                                       violations);
  spec.x_strides = ListFrom(proto.x_strides());
  spec.w_strides = ListFrom(proto.w_strides());
  spec.y_strides = ListFrom(proto.y_strides());
  spec.mode = EnumFrom<ConvolutionMode>(proto.mode(), v1::ConvolutionMode_IsValid, "mode", prefix,
                                        violations);
  if (proto.epilogue_size() > 3) {
    violations->push_back({Path(prefix, "epilogue"),
                           Concat("must have at most 3 entries, has ", proto.epilogue_size())});
  } else {
    for (int i = 0; i < proto.epilogue_size(); ++i) {
      const int value = proto.epilogue(i);
      if (value != 0 && v1::EpilogueOp_IsValid(value)) {
        spec.epilogue.push_back(static_cast<EpilogueOp>(value));
      } else {
        violations->push_back(
            {Path(prefix, Concat("epilogue[", i, "]")), Concat("unknown enum number ", value)});
      }
    }
  }
  if (proto.alignment_bytes() != 0) spec.alignment_bytes = proto.alignment_bytes();
  spec.sm_count_target = proto.sm_count_target();
  return spec;
}

std::optional<ConvProblem> ProblemFromProto(const v1::ConvProblem& proto, std::string_view prefix,
                                            std::vector<Violation>* violations) {
  const size_t before = violations->size();
  ConvProblemSpec spec = SpecFromProto(proto, prefix, violations);
  std::set<std::string> unread;
  for (size_t i = before; i < violations->size(); ++i) unread.insert((*violations)[i].field);
  std::vector<Violation> broken;
  std::optional<ConvProblem> problem = ConvProblem::Create(std::move(spec), &broken);
  for (Violation& violation : broken) {
    violation.field = Path(prefix, violation.field);
    // What could not be read is not also missing.
    if (!unread.contains(violation.field)) violations->push_back(std::move(violation));
  }
  return violations->size() == before ? std::move(problem) : std::nullopt;
}

std::optional<ConvProblem> ProblemFromProto(const v1::ProblemSpec& proto, std::string_view prefix,
                                            std::vector<Violation>* violations) {
  switch (proto.form_case()) {
    case v1::ProblemSpec::kProblem:
      return ProblemFromProto(proto.problem(), Path(prefix, "problem"), violations);
    case v1::ProblemSpec::kText: {
      std::vector<Violation> broken;
      std::optional<ConvProblem> problem = ConvProblem::Parse(proto.text(), &broken);
      for (const Violation& violation : broken) {
        violations->push_back(
            {Path(prefix, "text"), violation.field == "text"
                                       ? violation.rule
                                       : Concat(violation.field, ": ", violation.rule)});
      }
      return problem;
    }
    case v1::ProblemSpec::FORM_NOT_SET:
      break;
  }
  violations->push_back(
      {prefix.empty() ? "problem" : std::string(prefix), "required: problem or text must be set"});
  return std::nullopt;
}

v1::ConvProblem ProblemToProto(const ConvProblem& problem) {
  v1::ConvProblem proto;
  proto.set_operation(static_cast<v1::Operation>(problem.operation()));
  ListTo(problem.x_dims(), proto.mutable_x_dims());
  ListTo(problem.w_dims(), proto.mutable_w_dims());
  ListTo(problem.pad_low(), proto.mutable_pad_low());
  ListTo(problem.pad_high(), proto.mutable_pad_high());
  ListTo(problem.strides(), proto.mutable_strides());
  ListTo(problem.dilations(), proto.mutable_dilations());
  proto.set_groups(problem.groups());
  proto.set_data_type(static_cast<v1::DataType>(problem.data_type()));
  proto.set_output_type(static_cast<v1::DataType>(problem.output_type()));
  proto.set_compute_type(static_cast<v1::DataType>(problem.compute_type()));
  if (!problem.epilogue().empty()) {
    proto.set_intermediate_type(static_cast<v1::DataType>(problem.intermediate_type()));
  }
  proto.set_layout(static_cast<v1::TensorLayout>(problem.layout()));
  if (problem.layout() == TensorLayout::kStrided) {
    ListTo(problem.x_strides(), proto.mutable_x_strides());
    ListTo(problem.w_strides(), proto.mutable_w_strides());
    ListTo(problem.y_strides(), proto.mutable_y_strides());
  }
  proto.set_mode(static_cast<v1::ConvolutionMode>(problem.mode()));
  for (const EpilogueOp op : problem.epilogue()) {
    proto.add_epilogue(static_cast<v1::EpilogueOp>(op));
  }
  proto.set_alignment_bytes(problem.alignment_bytes());
  proto.set_sm_count_target(problem.sm_count_target());
  return proto;
}

}  // namespace convtune
