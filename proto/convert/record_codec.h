// The record of proto/convtune/v1 to and from the model's structs.
#pragma once

#include "convtune/v1/measurement.pb.h"
#include "proto/model/environment.h"

namespace convtune {

v1::Provenance ToProto(const Provenance& provenance);
Provenance FromProto(const v1::Provenance& proto);

}  // namespace convtune
