// A DeviceProfile holds the properties, as JSON, that cuDNN needs of a GPU that is
// not there.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/model/environment.h"

namespace convtune::worker::device {

// Value type.
struct DeviceProfile {
  std::string name;         // "nvidia-h200"
  Environment environment;  // but for what is cuDNN's
  int64_t memory_bytes = 0;
  std::string properties_json;  // compact, as cuDNN takes it

  // Reads {"name": ..., "source": ..., "properties": {...}} or the bare
  // properties, whose name is then the slug of deviceName. cuDNN takes integers only as digits,
  // without a point or an exponent. INVALID_ARGUMENT names the field and the rule.
  static absl::StatusOr<DeviceProfile> Parse(std::string_view json);
  // Reads a file of at most 1 MiB. NOT_FOUND, or as Parse.
  static absl::StatusOr<DeviceProfile> Load(const std::string& path);
};

// JSON in one line. Bytes of its texts that are no UTF-8 become U+FFFD.
std::string ToLine(const nlohmann::json& json);

}  // namespace convtune::worker::device
