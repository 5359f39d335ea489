#include "server/rpc/messages/request_validator.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "db/bundle/bundle_codec.h"
#include "google/protobuf/descriptor.h"
#include "proto/base/strings.h"
#include "proto/convert/ban_proto.h"
#include "proto/convert/terms_proto.h"
#include "proto/model/text.h"

namespace convtune::rpc::messages {
namespace {

constexpr size_t kMaxEnvironmentLength = 128;
constexpr size_t kMaxModelLength = 128;
constexpr size_t kMaxTokenLength = 4096;
constexpr std::string_view kProfilePrefix = "profile:";

bool IsEnvironmentCharacter(unsigned char c) {
  return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-' || c == '.';
}

// Reads "bans/3", whose number is at least 1.
bool ReadNumbered(std::string_view prefix, std::string_view name, int64_t* number) {
  return ConsumeFront(&name, prefix) && !name.starts_with('0') && ReadInt64(name, number).ok() &&
         *number > 0;
}

constexpr size_t kMaxRequestIdLength = 128;
constexpr int kMaxRows = 10000;
constexpr int kDefaultPageSize = 100;
constexpr int kMaxPageSize = 1000;
constexpr int kMaxCanaryPermille = 999;
constexpr size_t kMaxPathLength = 4095;  // PATH_MAX less the final NUL
constexpr int64_t kMaxMemoryBudget = int64_t{1} << 50;
constexpr int kMaxCandidates = 100000;
constexpr int kMostOutboxRows = 1'000;
constexpr int kMostOutboxIds = 10'000;
constexpr int kMostTunings = 10'000;
constexpr size_t kMostRefused = 100;
constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();
constexpr absl::Duration kMinTimeBudget = absl::Milliseconds(10);
constexpr absl::Duration kMaxTimeBudget = absl::Hours(1);
constexpr absl::Duration kMinTtl = absl::Seconds(1);
// A Timestamp ends in the year 9999.
constexpr absl::Duration kMaxTtl = absl::Hours(24 * 365 * 100);

jobs::TuningOptions ReadOptions(const v1::TuningOptions& in, FieldChecker* check) {
  jobs::TuningOptions out;
  if (in.has_time_budget()) {
    check->Duration("options.time_budget", in.time_budget(), kMinTimeBudget, kMaxTimeBudget,
                    &out.time_budget);
  }
  check->Range("options.memory_budget_bytes", in.memory_budget_bytes(), 0, kMaxMemoryBudget);
  out.memory_budget_bytes = in.memory_budget_bytes();
  check->Range("options.max_candidates", in.max_candidates(), 0, kMaxCandidates);
  out.max_candidates = in.max_candidates();
  check->Enum<jobs::Search>("options.search", in.search(), &out.search);
  check->Enum<Api>("options.api", in.api(), &out.api);
  if (in.has_wait_idle()) {
    check->Duration("options.wait_idle", in.wait_idle(), absl::ZeroDuration(), kMaxTimeBudget,
                    &out.wait_idle);
  }
  out.all_timings = in.all_timings();
  out.list_only = in.list_only();
  return out;
}

// These two hold the rules of fields by their names, for CheckRules.
void CheckText(const std::string& field, const std::string& value, FieldChecker* check) {
  int64_t number = 0;
  if (field == "environment") {
    check->EnvironmentName(value);
  } else if (field == "name") {
    check->Require(!value.empty(), field, "is required");
    check->Require(value.empty() || ReadNumbered("jobs/", value, &number), field,
                   "must be \"jobs/\" and a number from 1, such as \"jobs/7\"");
  } else if (field == "author") {
    check->Author(field, value);
  } else if (field == "reason") {
    check->Reason(field, value);
  } else if (field == "page_token" || field == "text_filter" || field == "trouble") {
    check->Length(field, value, 0, kMaxTokenLength);
  } else if (field == "agent" && !value.empty()) {
    const std::string rule = CheckNodeName(value);
    check->Require(rule.empty(), field, rule);
  } else if (field == "path") {
    check->Length(field, value, 0, kMaxPathLength);
    check->NoControls(field, value);
  }
}

void CheckNumber(const std::string& field, int64_t value, FieldChecker* check) {
  constexpr std::pair<std::string_view, int64_t> kMost[] = {{"max_changes", kMaxRows},
                                                            {"max_problems", kMaxRows},
                                                            {"max_rows", kMostOutboxRows},
                                                            {"canary_permille", kMaxCanaryPermille},
                                                            {"release", kMaxInt64},
                                                            {"from", kMaxInt64},
                                                            {"to", kMaxInt64},
                                                            {"offset", kMaxInt64}};
  for (const auto& [name, most] : kMost) {
    if (name == field) check->Range(field, value, 0, most);
  }
  check->Require(field != "page_size" || value >= 0, field,
                 absl::StrCat("must not be negative, is ", value));
  check->Require(field != "fleet_pin" || value >= 0, field, "must not be negative");
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
  return ReadProgram(program, violations_).value_or(Environment());
}

void FieldChecker::Duration(std::string_view field, const google::protobuf::Duration& value,
                            absl::Duration low, absl::Duration high, absl::Duration* out) {
  constexpr int32_t kMostNanos = 999'999'999;
  if (value.nanos() < (value.seconds() > 0 ? 0 : -kMostNanos) ||
      value.nanos() > (value.seconds() < 0 ? 0 : kMostNanos)) {
    Add(std::string(field) + ".nanos",
        absl::StrCat("must be at most 999999999, with the sign of seconds, is ", value.nanos()));
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

std::vector<ConvProblem> FieldChecker::Problem(const v1::ProblemSpec& spec) {
  std::optional<ConvProblem> problem = ConvProblem::Create(spec, violations_, "problem");
  if (!problem.has_value()) return {};
  return {*std::move(problem)};
}

std::vector<ConvProblem> FieldChecker::Problems(
    const google::protobuf::RepeatedPtrField<v1::ProblemSpec>& specs) {
  std::vector<ConvProblem> problems;
  if (specs.empty() || specs.size() > kMaxProblemsPerRequest) {
    Add("problems",
        absl::StrCat("must have 1 to ", kMaxProblemsPerRequest, " entries, has ", specs.size()));
    return problems;
  }
  problems.reserve(static_cast<size_t>(specs.size()));
  for (int i = 0; i < specs.size(); ++i) {
    std::optional<ConvProblem> problem =
        ConvProblem::Create(specs.Get(i), violations_, absl::StrCat("problems[", i, "]"));
    if (problem.has_value()) {
      problems.push_back(*std::move(problem));
    }
  }
  return problems;
}

int PageSizeOf(int page_size) {
  return page_size == 0 ? kDefaultPageSize : std::min(page_size, kMaxPageSize);
}

std::optional<lookup::LookupRequest> Validate(const v1::BatchGetRequest& request,
                                              std::vector<Violation>* violations) {
  FieldChecker check(violations);
  std::vector<ConvProblem> problems = check.ProblemsOf(request);
  std::optional<lookup::LookupRequest> out = ValidateWithoutProblems(request, violations);
  if (!check.ok()) return std::nullopt;
  out->problems = std::move(problems);
  return out;
}

std::optional<lookup::LookupRequest> ValidateWithoutProblems(const v1::BatchGetRequest& request,
                                                             std::vector<Violation>* violations) {
  FieldChecker check(violations);
  lookup::LookupRequest out;
  check.EnvironmentName(request.environment());
  out.environment = request.environment();
  out.program = check.Program(request.program());
  out.demand.constraints = ReadConstraints(request.constraints(), &check);
  check.Require(request.max_reply_bytes() >= 0, "max_reply_bytes", "must not be negative");
  check.Enum<jobs::OnMiss>("on_miss", request.on_miss(), &out.demand.on_miss);
  check.KnownEnum("min_evidence", request.min_evidence());
  out.demand.min_evidence = static_cast<Evidence>(request.min_evidence());
  if (request.has_max_age()) {
    check.Duration("max_age", request.max_age(), kMinTtl, kMaxTtl, &out.demand.max_age);
  }
  out.demand.options = ReadOptions(request.options(), &check);
  check.Require(!out.demand.options.list_only, "options.list_only", "must be false in a look-up");
  out.include_hints = request.include_hints();
  return check.ok() ? std::make_optional(std::move(out)) : std::nullopt;
}

std::optional<jobs::JobRequest> Validate(const v1::CreateTuningJobRequest& request,
                                         std::vector<Violation>* violations) {
  FieldChecker check(violations);
  jobs::JobRequest out;
  check.EnvironmentName(request.environment());
  out.environment = request.environment();
  out.program = check.Program(request.program());
  out.problems = check.ProblemsOf(request);
  out.demand.options = ReadOptions(request.options(), &check);
  if (request.force()) out.demand.max_age = absl::ZeroDuration();
  check.Enum<jobs::Priority>("priority", request.priority(), &out.priority);
  check.Length("request_id", request.request_id(), 0, kMaxRequestIdLength);
  check.NoControls("request_id", request.request_id());
  out.request_id = request.request_id();
  return check.ok() ? std::make_optional(std::move(out)) : std::nullopt;
}

std::optional<CreateBanArgs> Validate(const v1::CreateBanRequest& request,
                                      std::vector<Violation>* violations) {
  FieldChecker check(violations);
  check.Require(request.has_ban(), "ban", "must be given");
  CreateBanArgs out;
  if (request.has_ban()) out.ban = BanFromProto(request.ban(), "ban", violations);
  check.Require(request.ban().spatial_rank() == 0, "ban.spatial_rank", "must not be given");
  check.Range("max_changes", request.max_changes(), 0, kMaxRows);
  out.max_changes = static_cast<int>(RowsOf(request.max_changes()));
  out.dry_run = request.dry_run();
  return check.ok() ? std::make_optional(std::move(out)) : std::nullopt;
}

std::optional<DeleteBanArgs> Validate(const v1::DeleteBanRequest& request,
                                      std::vector<Violation>* violations) {
  FieldChecker check(violations);
  DeleteBanArgs out;
  check.Require(ReadNumbered("bans/", request.name(), &out.number), "name",
                "must be bans/ and a number; convtuned --no-errata is without those of shipped/");
  check.Require(request.fleet_ban() >= 0, "fleet_ban", "must not be negative");
  out.fleet_ban = request.fleet_ban();
  return check.ok() ? std::make_optional(out) : std::nullopt;
}

std::optional<ApplyTuningsArgs> Validate(const v1::ApplyTuningsRequest& request,
                                         std::vector<Violation>* violations) {
  FieldChecker checker(violations);
  checker.Require(request.tunings_size() <= kMostTunings, "tunings", "must be at most 10,000");
  if (!checker.ok()) return std::nullopt;
  std::vector<db::bundle::BundleEnvironmentRow> environments;
  for (const v1::BundleEnvironment& environment : request.environments()) {
    environments.push_back(db::bundle::FromBundleEnvironment(environment));
  }
  ApplyTuningsArgs args;
  const auto refuse = [&args](int index, const std::string& why) {
    if (args.refused.size() < kMostRefused) {
      args.refused.push_back(absl::StrCat("tunings[", index, "].", why));
    }
  };
  for (int i = 0; i < request.tunings_size(); ++i) {
    const v1::Tuning& row = request.tunings(i);
    if (row.environment_number() < 1 || row.environment_number() > request.environments_size()) {
      refuse(i, "environment_number: must be the number of one of the environments");
      continue;
    }
    const db::bundle::BundleEnvironmentRow& environment =
        environments[static_cast<size_t>(row.environment_number()) - 1];
    // Times are the fleet server's: this node's clock may be behind it.
    absl::StatusOr<Tuning> tuning =
        db::bundle::FromBundleTuning(row, environment, absl::InfiniteFuture());
    if (!tuning.ok()) {
      refuse(i, std::string(tuning.status().message()));
      continue;
    }
    tuning->origin = Origin::kFleet;
    args.records.push_back({*std::move(tuning), environment.environment});
  }
  return args;
}

void CheckRules(const google::protobuf::Message& request, FieldChecker* check) {
  const google::protobuf::Reflection& values = *request.GetReflection();
  for (int i = 0; i < request.GetDescriptor()->field_count(); ++i) {
    const google::protobuf::FieldDescriptor* field = request.GetDescriptor()->field(i);
    if (field->is_repeated()) continue;
    if (field->cpp_type() == field->CPPTYPE_STRING) {
      CheckText(field->name(), values.GetString(request, field), check);
    } else if (field->cpp_type() == field->CPPTYPE_INT32) {
      CheckNumber(field->name(), values.GetInt32(request, field), check);
    } else if (field->cpp_type() == field->CPPTYPE_INT64) {
      CheckNumber(field->name(), values.GetInt64(request, field), check);
    }
  }
}

void CheckRules(const v1::PinRequest& request, FieldChecker* check) {
  CheckRules(static_cast<const google::protobuf::Message&>(request), check);
  CandidatePattern candidate;
  check->Parsed("candidate", &CandidatePattern::Parse, request.candidate(), 1, &candidate);
  absl::Duration ttl;
  if (request.has_ttl()) check->Duration("ttl", request.ttl(), kMinTtl, kMaxTtl, &ttl);
}

void CheckRules(const v1::AckOutboxRequest& request, FieldChecker* check) {
  check->Require(request.refused_size() <= request.ids_size(), "refused", "must be among ids");
  check->Require(request.ids_size() <= kMostOutboxIds, "ids", "must be at most 10,000");
}

}  // namespace convtune::rpc::messages
