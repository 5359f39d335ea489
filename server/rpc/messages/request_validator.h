// Every rule that a request has to keep, in one file. Each function reads one
// request into what the tuner takes, or adds every broken rule (at least one)
// to `violations` and returns nullopt. Field paths are those of the request,
// such as "problems[3].pad_low[1]". Pure functions.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "convtune/v1/bundle_service.pb.h"
#include "convtune/v1/maintenance_service.pb.h"
#include "convtune/v1/release_service.pb.h"
#include "convtune/v1/tuning_service.pb.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/ban.h"
#include "proto/model/tuning/candidate.h"
#include "proto/model/violation.h"
#include "server/rpc/messages/field_checker.h"
#include "server/tuner/tuner.h"

namespace convtune::rpc::messages {

// A list's page_size, where it has a default and a most.
int PageSizeOf(int page_size);
// The rows that max_changes and max_problems ask for, where 0 is the default.
size_t RowsOf(int max_rows);

struct OneProblemArgs {
  std::string environment;
  ConvProblem problem;
  int64_t fleet_pin = 0;  // of Unpin
};

struct DeleteTuningArgs {
  std::string environment;
  std::vector<ConvProblem> problems;
  bool only_from_fleet = false;
};

struct PinArgs {
  std::string environment;
  ConvProblem problem;
  CandidatePattern candidate;
  std::string reason;
  std::optional<absl::Duration> ttl;
  int64_t fleet_pin = 0;
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

std::optional<lookup::LookupRequest> Validate(const v1::BatchGetRequest& request,
                                              std::vector<Violation>* violations);
// All but `problems`, which is not read.
std::optional<lookup::LookupRequest> ValidateWithoutProblems(const v1::BatchGetRequest& request,
                                                             std::vector<Violation>* violations);
std::optional<jobs::JobRequest> Validate(const v1::CreateTuningJobRequest& request,
                                         std::vector<Violation>* violations);
std::optional<OneProblemArgs> Validate(const v1::GetTuningRequest& request,
                                       std::vector<Violation>* violations);
std::optional<OneProblemArgs> Validate(const v1::UnpinRequest& request,
                                       std::vector<Violation>* violations);
std::optional<DeleteTuningArgs> Validate(const v1::DeleteTuningRequest& request,
                                         std::vector<Violation>* violations);
std::optional<PinArgs> Validate(const v1::PinRequest& request, std::vector<Violation>* violations);
std::optional<CreateBanArgs> Validate(const v1::CreateBanRequest& request,
                                      std::vector<Violation>* violations);
std::optional<DeleteBanArgs> Validate(const v1::DeleteBanRequest& request,
                                      std::vector<Violation>* violations);

// Requests that are taken as they are.
void CheckRules(const v1::ListTuningsRequest& request, FieldChecker* check);
void CheckRules(const v1::ListPinsRequest& request, FieldChecker* check);
void CheckRules(const v1::ListWantedRequest& request, FieldChecker* check);
void CheckRules(const v1::DiffReleasesRequest& request, FieldChecker* check);
void CheckRules(const v1::BackupDatabaseRequest& request, FieldChecker* check);
void CheckRules(const v1::ExportBundleRequest& request, FieldChecker* check);
void CheckRules(const v1::PromoteReleaseRequest& request, FieldChecker* check);
void CheckRules(const v1::RollBackReleaseRequest& request, FieldChecker* check);
void CheckRules(const v1::ReadSnapshotRequest& request, FieldChecker* check);

template <typename Request>
requires(std::same_as<Request, v1::ListTuningJobsRequest> ||
         std::same_as<Request, v1::ListEnvironmentsRequest> ||
         std::same_as<Request, v1::ListReleasesRequest>) void CheckRules(const Request& request,
                                                                         FieldChecker* check) {
  check->Page(request.page_size(), request.page_token());
}

template <typename Request>
requires(std::same_as<Request, v1::GetTuningJobRequest> ||
         std::same_as<Request, v1::WatchTuningJobRequest> ||
         std::same_as<Request, v1::CancelTuningJobRequest>) void CheckRules(const Request& request,
                                                                            FieldChecker* check) {
  check->JobName(request.name());
}

// Without rules.
template <typename Request>
requires(std::same_as<Request, v1::ListDevicesRequest> ||
         std::same_as<Request, v1::ListBansRequest> ||
         std::same_as<Request, v1::GetServerInfoRequest> ||
         std::same_as<Request, v1::CheckDatabaseRequest> ||
         std::same_as<Request, v1::CompactDatabaseRequest> ||
         std::same_as<Request, v1::GetPublicationRequest>) void CheckRules(const Request&,
                                                                           FieldChecker*) {}

template <typename Request>
requires requires(const Request& request, FieldChecker* check) { CheckRules(request, check); }
std::optional<Request> Validate(const Request& request, std::vector<Violation>* violations) {
  FieldChecker check(violations);
  CheckRules(request, &check);
  return check.ok() ? std::make_optional(request) : std::nullopt;
}

}  // namespace convtune::rpc::messages
