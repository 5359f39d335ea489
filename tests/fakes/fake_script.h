// Reads what convtune-fake-worker is told, by the names of a FakeScript's fields.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tests/fakes/fake_script.pb.h"

namespace convtune {

// Of CONVTUNE_FAKE_SCRIPT or --script: a script, if there is a '=' in it,
// else the path of a file that holds one. Every error names the key.
absl::StatusOr<FakeScript> LoadScript(const std::string& text_or_path);

}  // namespace convtune
