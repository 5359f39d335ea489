// Converters from the model to messages; one place for all of them. The other
// direction is in request_validator.h. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "convtune/v1/fleet_service.pb.h"
#include "convtune/v1/maintenance_service.pb.h"
#include "convtune/v1/release_service.pb.h"
#include "convtune/v1/tuning.pb.h"
#include "convtune/v1/tuning_service.pb.h"
#include "db/store/backups.h"
#include "db/tuning_store.h"
#include "proto/convert/record_codec.h"
#include "proto/model/tuning/tuning.h"
#include "server/release/release_manager.h"
#include "server/rpc/messages/page.h"
#include "server/tuner/tuner.h"

namespace convtune::rpc::messages {

using convtune::ToProto;

// The one of `known` with that key text; what the text says if there is none.
tuner::EnvironmentInfo FindEnvironment(const std::vector<tuner::EnvironmentInfo>& known,
                                       const std::string& text);

v1::Environment ToProto(const tuner::EnvironmentInfo& info);
// With the name of a legacy algorithm, which depends on the operation.
v1::Candidate ToProto(const Candidate& candidate, Operation operation);
v1::Quarantine ToProto(const QuarantineEntry& entry);
// With all candidates and samples.
v1::Tuning ToProto(const Tuning& tuning, const tuner::EnvironmentInfo& environment);
// Without candidates.
v1::Tuning ToProto(const lookup::IndexedTuning& indexed, const tuner::EnvironmentInfo& environment);
v1::ListTuningJobsResponse ToProto(const jobs::JobPage& page);
v1::PinRecord ToProto(const Pin& pin);
// Adds what `bans`, those of the tuning's key, make of it.
void AddBanned(const Tuning& tuning, const Bans& bans, v1::Tuning* out);

v1::Release ToProto(const Release& release);
// A page of the releases. INVALID_ARGUMENT: the page token is not one that the page before gave.
absl::Status Fill(const release::ReleaseList& list, const PageArgs& page,
                  v1::ListReleasesResponse* out);
absl::Status Fill(const std::vector<WantedProblem>& wanted, const PageArgs& page,
                  v1::ListWantedResponse* out);
v1::DiffReleasesResponse ToProto(const release::ReleaseDiff& diff);

v1::ReadOutboxResponse ToProto(const db::OutboxPage& page);

}  // namespace convtune::rpc::messages
