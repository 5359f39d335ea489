// A FieldChecker holds the rules that fields of several requests to the daemon share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "convtune/v1/problem.pb.h"
#include "convtune/v1/record.pb.h"
#include "google/protobuf/duration.pb.h"
#include "proto/convert/field_rules.h"
#include "proto/model/environment.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/violation.h"

namespace convtune::rpc::messages {

inline constexpr int kMaxProblemsPerRequest = 10000;

// Collects the violations of one request. `field` is always the path that a
// violation is to name. Not thread-safe.
class FieldChecker : public FieldRules {
 public:
  using FieldRules::FieldRules;

  // Field "environment", a name or a text; empty is allowed.
  void EnvironmentName(std::string_view value);
  // Field "program".
  Environment Program(const v1::Environment& program);
  // Field "name".
  void JobName(std::string_view value);
  // Field "page_token".
  void PageToken(std::string_view value);
  // Fields "page_size" and "page_token".
  void Page(int size, std::string_view token);
  // Sets `*out` where the value is valid.
  void Duration(std::string_view field, const google::protobuf::Duration& value, absl::Duration low,
                absl::Duration high, absl::Duration* out);
  // Field "problem".
  std::optional<ConvProblem> Problem(bool present, const v1::ProblemSpec& spec);
  // Field "problems": the valid ones among them.
  std::vector<ConvProblem> Problems(
      const google::protobuf::RepeatedPtrField<v1::ProblemSpec>& specs);
};

}  // namespace convtune::rpc::messages
