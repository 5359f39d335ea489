// The record of proto/convtune/v1 to and from the model's structs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "convtune/v1/record.pb.h"
#include "proto/model/tuning/conditions.h"
#include "proto/model/tuning/tuning.h"
#include "proto/model/violation.h"

namespace convtune {

// A message holds UTF-8 alone, and cuDNN's and NVML's texts may be anything: in one
// that is not UTF-8 every byte beyond ASCII becomes '?'.
std::string Utf8(std::string text);

// A time that a Timestamp or a Duration cannot hold becomes the nearest that it can.
google::protobuf::Timestamp ToProto(absl::Time time);
google::protobuf::Duration ToProto(absl::Duration duration);
absl::Time FromProto(const google::protobuf::Timestamp& proto);
absl::Duration FromProto(const google::protobuf::Duration& proto);

v1::Provenance ToProto(const Provenance& provenance);
Provenance FromProto(const v1::Provenance& proto);

v1::SelfCheck ToProto(const SelfCheck& check);
// A message that names no instrument, or instruments without a run, counts as not run.
SelfCheck FromProto(const v1::SelfCheck& proto);
// The mask; nullopt where a name is no instrument's, or a self-check that was not run has names.
std::optional<uint32_t> SelfCheckFromProto(const v1::SelfCheck& proto);

// All but the fields that are output only. `record` is empty; it may live on an
// arena. Reals become binary32.
void Fill(const Candidate& candidate, bool with_samples, v1::Candidate* record);
// With the fields that are output only, of which the names of legacy algorithms depend on the
// operation; without samples.
void Fill(const Candidate& candidate, Operation operation, v1::Candidate* record);
// The fields that are output only, and no others.
void FillOutput(const Candidate& candidate, Operation operation, v1::Candidate* record);
void Fill(const Conditions& conditions, v1::Conditions* record);
// All but the key and the fields that are output only.
void Fill(const Tuning& tuning, bool with_samples, v1::Tuning* record);

// The reverse. INVALID_ARGUMENT naming the field, with the struct in any state, if an
// enumeration's number or an instrument is not known, a note or a reason is there twice,
// or ParseCandidateId could not read a candidate's text form. Other numbers and rules between
// fields are not judged.
absl::Status Read(const v1::Candidate& record, Candidate* candidate);
absl::Status Read(const v1::Conditions& record, Conditions* conditions);
absl::Status Read(const v1::Tuning& record, Tuning* tuning);

}  // namespace convtune
