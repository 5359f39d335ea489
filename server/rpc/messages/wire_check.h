// Says why protobuf refused a message.
#pragma once

#include <string>
#include <vector>

#include "proto/model/violation.h"

namespace google::protobuf {
class Descriptor;
}  // namespace google::protobuf

namespace convtune::rpc::messages {

// Protobuf refuses a message with a string that is not valid UTF-8 without
// saying which. Gives the path of each such field of `bytes`, read as a message
// of type `type`; if that is not what is wrong, one violation of the field
// "request". Never empty. Thread-safe.
std::vector<Violation> ExplainUnparsable(const google::protobuf::Descriptor& type,
                                         const std::string& bytes);

}  // namespace convtune::rpc::messages
