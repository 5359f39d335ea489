// Reads and checks requests of FleetService, and fills its replies. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "convtune/v1/fleet_service.pb.h"
#include "db/outbox_store.h"
#include "db/tuning_store.h"
#include "proto/model/violation.h"
#include "server/rpc/messages/request_validator.h"

namespace convtune::rpc::messages {

// Tunings that keep every rule, of origin FLEET; and the others, in words.
struct ApplyTuningsArgs {
  std::vector<db::TuningRecord> records;
  std::vector<std::string> refused;  // at most 100
};

inline void CheckRules(const v1::GetFleetStateRequest&, FieldChecker*) {}
inline void CheckRules(const v1::RequeueOutboxRequest&, FieldChecker*) {}
void CheckRules(const v1::FollowReleaseRequest& request, FieldChecker* check);
void CheckRules(const v1::ReadOutboxRequest& request, FieldChecker* check);
void CheckRules(const v1::AckOutboxRequest& request, FieldChecker* check);
std::optional<ApplyTuningsArgs> Validate(const v1::ApplyTuningsRequest& request,
                                         std::vector<Violation>* violations);

// The rows that a ReadOutbox asks for.
size_t OutboxRowsOf(const v1::ReadOutboxRequest& request);
std::vector<db::OutboxId> OutboxIdsOf(const v1::AckOutboxRequest& request);
v1::ReadOutboxResponse ToProto(const db::OutboxPage& page);

}  // namespace convtune::rpc::messages
