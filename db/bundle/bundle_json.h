// WriteBundleJson writes a bundle as JSON lines, for people and for diff.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "db/bundle/bundle_reader.h"

namespace convtune::db::bundle {

// The beginning of every such file.
inline constexpr std::string_view kBundleJson = "{\"place\":";

// One line for each tuning, in the order of the bundle, with the text of its
// environment in place of a number: {"environment": TEXT, "tuning": Tuning
// in protobuf's JSON form}. Before the first one of an environment and place:
// {"place": BundleEnvironment}. Reads `reader` to its end and checks the
// signature as ReadWholeBundle; `sink` takes lines with their "\n".
absl::Status WriteBundleJson(BundleReader* reader, const std::vector<std::string>& trusted,
                             const std::function<absl::Status(const std::string&)>& sink);

}  // namespace convtune::db::bundle
