#include "server/rpc/messages/field_checker.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/convert/problem_proto.h"
#include "proto/model/violation.h"

namespace convtune::rpc::messages {
namespace {

constexpr size_t kMaxEnvironmentLength = 128;
constexpr size_t kMaxModelLength = 128;
constexpr size_t kMaxPageTokenLength = 4096;
constexpr std::string_view kJobPrefix = "jobs/";
constexpr std::string_view kProfilePrefix = "profile:";
constexpr size_t kMaxJobDigits = 18;  // any such number fits int64

bool IsEnvironmentCharacter(unsigned char c) {
  return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-' || c == '.';
}

bool IsJobName(std::string_view value) {
  if (!value.starts_with(kJobPrefix)) {
    return false;
  }
  value.remove_prefix(kJobPrefix.size());
  return !value.empty() && value.size() <= kMaxJobDigits && value[0] != '0' &&
         std::all_of(value.begin(), value.end(), absl::ascii_isdigit);
}

}  // namespace

void FieldChecker::EnvironmentName(std::string_view value) {
  constexpr std::string_view kField = "environment";
  if (value.find(',') != std::string_view::npos) {
    const absl::Status text = Environment::Parse(value).status();
    const auto violation = ViolationIn(text);
    if (!text.ok()) Add(kField, violation ? violation->rule : std::string(text.message()));
    return;
  }
  Length(kField, value, 0, kMaxEnvironmentLength);
  std::string_view slug = value;
  if (slug.starts_with(kProfilePrefix)) {
    slug.remove_prefix(kProfilePrefix.size());
  }
  const bool legal = !slug.empty() && std::all_of(slug.begin(), slug.end(), IsEnvironmentCharacter);
  Require(value.empty() || legal, kField,
          "must be a name that ListEnvironments gives: lower-case letters, digits, '-' and '.', "
          "behind \"profile:\" for a profile; or a text that it gives");
}

Environment FieldChecker::Program(const v1::Environment& program) {
  KnownEnum("program.library_configuration", program.library_configuration());
  Length("program.gpu_model", program.gpu_model(), 0, kMaxModelLength);
  Length("program.mig_profile", program.mig_profile(), 0, kMaxModelLength);
  std::vector<Violation> violations;
  std::optional<Environment> read = ReadProgram(program, &violations);
  for (Violation& violation : violations) {
    Add(absl::StrCat("program.", violation.field), std::move(violation.rule));
  }
  return std::move(read).value_or(Environment());
}

void FieldChecker::JobName(std::string_view value) {
  if (value.empty()) {
    Add("name", "is required");
  } else {
    Require(IsJobName(value), "name", "must be \"jobs/\" and a number from 1, such as \"jobs/7\"");
  }
}

void FieldChecker::Page(int size, std::string_view token) {
  Require(size >= 0, "page_size", absl::StrCat("must not be negative, is ", size));
  PageToken(token);
}

void FieldChecker::PageToken(std::string_view value) {
  Length("page_token", value, 0, kMaxPageTokenLength);
}

void FieldChecker::Duration(std::string_view field, const google::protobuf::Duration& value,
                            absl::Duration low, absl::Duration high, absl::Duration* out) {
  constexpr int32_t kNanosPerSecond = 1000000000;
  if (value.nanos() <= -kNanosPerSecond || value.nanos() >= kNanosPerSecond) {
    Add(std::string(field) + ".nanos",
        absl::StrCat("must be -999999999 to 999999999, is ", value.nanos()));
    return;
  }
  if ((value.seconds() < 0 && value.nanos() > 0) || (value.seconds() > 0 && value.nanos() < 0)) {
    Add(std::string(field) + ".nanos", "must have the sign of seconds");
    return;
  }
  const absl::Duration duration = absl::Seconds(value.seconds()) + absl::Nanoseconds(value.nanos());
  if (duration < low || duration > high) {
    Add(field, absl::StrCat("must be ", absl::FormatDuration(low), " to ",
                            absl::FormatDuration(high), ", is ", absl::FormatDuration(duration)));
    return;
  }
  *out = duration;
}

std::optional<ConvProblem> FieldChecker::Problem(bool present, const v1::ProblemSpec& spec) {
  if (!present) {
    Add("problem", "is required");
    return std::nullopt;
  }
  return ProblemFromProto(spec, "problem", violations_);
}

std::vector<ConvProblem> FieldChecker::Problems(
    const google::protobuf::RepeatedPtrField<v1::ProblemSpec>& specs) {
  std::vector<ConvProblem> problems;
  if (specs.empty()) {
    Add("problems", "is required");
    return problems;
  }
  if (specs.size() > kMaxProblemsPerRequest) {
    Add("problems",
        absl::StrCat("must have 1 to ", kMaxProblemsPerRequest, " entries, has ", specs.size()));
    return problems;
  }
  problems.reserve(static_cast<size_t>(specs.size()));
  for (int i = 0; i < specs.size(); ++i) {
    std::optional<ConvProblem> problem =
        ProblemFromProto(specs.Get(i), absl::StrCat("problems[", i, "]"), violations_);
    if (problem.has_value()) {
      problems.push_back(*std::move(problem));
    }
  }
  return problems;
}

}  // namespace convtune::rpc::messages
