// Bans from and to protobuf: the one place that says which bans there may be, for the
// daemon and for the fleet.
#pragma once

#include <string_view>
#include <vector>

#include "convtune/v1/tuning_service.pb.h"
#include "proto/model/tuning/ban.h"
#include "proto/model/violation.h"

namespace convtune {

v1::Ban ToProto(const Ban& ban);

// A candidate with the ban that keeps it from being an answer.
v1::BannedCandidate ToProto(const CandidateId& candidate, const Ban& ban);

// Without number and create_time, which nobody may choose. Every rule that `proto` breaks
// is added to `violations`, with `field` in front; then the ban is of no use. A time that is
// past is not among them: see Ban::CheckExpiry.
Ban BanFromProto(const v1::Ban& proto, std::string_view field, std::vector<Violation>* violations);

}  // namespace convtune
