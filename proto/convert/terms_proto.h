// Reads a look-up's constraints from protobuf, and writes an environment to protobuf: one place for
// the daemon and for libconvtune.
#pragma once

#include "convtune/v1/tuning.pb.h"
#include "proto/convert/field_rules.h"
#include "proto/model/environment.h"
#include "proto/model/tuning/candidate.h"

namespace convtune {

// Reads the field "constraints" of a request.
Constraints ReadConstraints(const v1::Constraints& in, FieldRules* rules);

// With name and text, without what the daemon knows beside them.
v1::Environment ToProto(const Environment& environment);

}  // namespace convtune
