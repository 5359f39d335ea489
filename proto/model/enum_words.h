// EnumWord gives the words of convtune.v1's enumerations. Thread-safe.
#pragma once

#include <string>

#include "google/protobuf/descriptor.h"

namespace convtune {

// OPERATION_BWD_DATA as "bwd_data", with `between` for the underscores; "" for a number that is
// not in the enumeration.
std::string EnumWord(const google::protobuf::EnumDescriptor& type, int number, char between = '_');

}  // namespace convtune
