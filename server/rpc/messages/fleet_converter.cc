#include "server/rpc/messages/fleet_converter.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "db/bundle/bundle_codec.h"
#include "server/rpc/messages/field_checker.h"
#include "server/rpc/messages/page.h"

namespace convtune::rpc::messages {
namespace {

constexpr int kMostRows = 1'000;
constexpr int kDefaultRows = 100;
constexpr int kMostIds = 10'000;
constexpr int kMostTunings = 10'000;
constexpr size_t kMostRefused = 100;

v1::OutboxId OutboxIdToProto(const db::OutboxId& id) {
  v1::OutboxId proto;
  proto.set_epoch(id.epoch);
  proto.set_sequence(id.sequence);
  return proto;
}

}  // namespace

void CheckRules(const v1::ReadOutboxRequest& request, FieldChecker* check) {
  check->Range("max_rows", request.max_rows(), 0, kMostRows);
}

void CheckRules(const v1::AckOutboxRequest& request, FieldChecker* check) {
  check->Require(request.refused_size() <= request.ids_size(), "refused", "must be among ids");
  check->Require(request.ids_size() <= kMostIds, "ids", "must be at most 10,000");
}

size_t OutboxRowsOf(const v1::ReadOutboxRequest& request) {
  return static_cast<size_t>(request.max_rows() == 0 ? kDefaultRows : request.max_rows());
}

std::vector<db::OutboxId> OutboxIdsOf(const v1::AckOutboxRequest& request) {
  std::vector<db::OutboxId> ids;
  for (const v1::OutboxId& id : request.ids()) ids.push_back({id.epoch(), id.sequence()});
  return ids;
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

void CheckRules(const v1::FollowReleaseRequest& request, FieldChecker* check) {
  check->Require(request.release() >= 0, "release", "must not be negative");
  check->Decision("", request.author(), request.reason());
}

v1::ReadOutboxResponse ToProto(const db::OutboxPage& page) {
  v1::ReadOutboxResponse response;
  response.set_more(page.more);
  for (const db::OutboxId& id : page.void_ids) *response.add_void_ids() = OutboxIdToProto(id);
  const auto make = [&page](size_t i) {
    const db::OutboxEntry& entry = page.entries[i];
    v1::OutboxRow row;
    *row.mutable_id() = OutboxIdToProto(entry.id);
    *row.mutable_environment() =
        db::bundle::ToBundleEnvironment(1, entry.environment, entry.tuning.provenance);
    db::bundle::FillBundleTuning(entry.tuning, 1, /*with_samples=*/false, row.mutable_tuning());
    row.set_relayed(entry.tuning.origin == Origin::kFleet);
    return row;
  };
  if (AddRows(page.entries.size(), make, response.mutable_rows()) < page.entries.size()) {
    response.set_more(true);
  }
  return response;
}

}  // namespace convtune::rpc::messages
