// Every rule that a request has to keep, in one file. Each function reads one
// request into what the tuner takes, or adds every broken rule (at least one)
// to `violations` and returns nullopt. Field paths are those of the request,
// such as "problems[3].pad_low[1]". Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "convtune/v1/bundle_service.pb.h"
#include "convtune/v1/fleet_service.pb.h"
#include "convtune/v1/maintenance_service.pb.h"
#include "convtune/v1/release_service.pb.h"
#include "convtune/v1/tuning_service.pb.h"
#include "db/tuning_store.h"
#include "google/protobuf/message.h"
#include "proto/convert/field_rules.h"
#include "proto/model/environment.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/ban.h"
#include "proto/model/tuning/candidate.h"
#include "proto/model/violation.h"
#include "server/tuner/tuner.h"

namespace convtune::rpc::messages {

inline constexpr int kMaxProblemsPerRequest = 10000;

// A FieldChecker holds the rules that fields of several requests share, and collects the violations
// of one request. `field` is always the path that a violation is to name. Not thread-safe.
class FieldChecker : public FieldRules {
 public:
  using FieldRules::FieldRules;

  // Field "environment", a name or a text; empty is allowed.
  void EnvironmentName(std::string_view value);
  // Field "program".
  Environment Program(const v1::Environment& program);
  // Sets `*out` where the value is valid.
  void Duration(std::string_view field, const google::protobuf::Duration& value, absl::Duration low,
                absl::Duration high, absl::Duration* out);
  // The valid ones of field "problem" or "problems".
  std::vector<ConvProblem> ProblemsOf(const auto& request) {
    if constexpr (requires { request.problem(); }) {
      return Problem(request.problem());
    } else {
      return Problems(request.problems());
    }
  }

 private:
  std::vector<ConvProblem> Problem(const v1::ProblemSpec& spec);
  std::vector<ConvProblem> Problems(
      const google::protobuf::RepeatedPtrField<v1::ProblemSpec>& specs);
};

// The rows of a page of a list whose page_size has a default and a most.
int PageSizeOf(int page_size);
// The rows that a request's max_changes, max_problems or max_rows asks for; 0 asks for the
// default.
inline constexpr int kDefaultRows = 1000;
inline constexpr int kDefaultOutboxRows = 100;
inline size_t RowsOf(int max_rows, int by_default = kDefaultRows) {
  return static_cast<size_t>(max_rows == 0 ? by_default : max_rows);
}

// A request with the problems that its field `problem` or `problems` names.
template <typename Request>
struct WithProblems {
  Request request;
  std::vector<ConvProblem> problems;
};

struct CreateBanArgs {
  Ban ban;
  int max_changes = 0;
  bool dry_run = false;
};

struct DeleteBanArgs {
  int64_t number = 0;
  int64_t fleet_ban = 0;
};

// Tunings that keep every rule, of origin FLEET; and the others, in words.
struct ApplyTuningsArgs {
  std::vector<db::TuningRecord> records;
  std::vector<std::string> refused;  // at most 100
};

std::optional<lookup::LookupRequest> Validate(const v1::BatchGetRequest& request,
                                              std::vector<Violation>* violations);
// All but `problems`, which is not read.
std::optional<lookup::LookupRequest> ValidateWithoutProblems(const v1::BatchGetRequest& request,
                                                             std::vector<Violation>* violations);
std::optional<jobs::JobRequest> Validate(const v1::CreateTuningJobRequest& request,
                                         std::vector<Violation>* violations);
std::optional<CreateBanArgs> Validate(const v1::CreateBanRequest& request,
                                      std::vector<Violation>* violations);
std::optional<DeleteBanArgs> Validate(const v1::DeleteBanRequest& request,
                                      std::vector<Violation>* violations);
std::optional<ApplyTuningsArgs> Validate(const v1::ApplyTuningsRequest& request,
                                         std::vector<Violation>* violations);

// Requests that are taken as they are, but for their problems: a field has the same rules in all of
// them.
void CheckRules(const google::protobuf::Message& request, FieldChecker* check);
void CheckRules(const v1::AckOutboxRequest& request, FieldChecker* check);
void CheckRules(const v1::PinRequest& request, FieldChecker* check);

template <typename Request>
auto Validate(const Request& request, std::vector<Violation>* violations) {
  FieldChecker check(violations);
  CheckRules(request, &check);
  if constexpr (
      requires { request.problem(); } || requires { request.problems(); }) {
    WithProblems<Request> args{request, check.ProblemsOf(request)};
    return check.ok() ? std::make_optional(std::move(args)) : std::nullopt;
  } else {
    return check.ok() ? std::make_optional(request) : std::nullopt;
  }
}

}  // namespace convtune::rpc::messages
