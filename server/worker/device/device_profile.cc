#include "server/worker/device/device_profile.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace convtune::worker::device {
namespace {

// Its keys are in order, so that equal profiles give equal text.
using Json = nlohmann::json;

constexpr size_t kMaxFileBytes = size_t{1} << 20;
// Deeper levels, which no property of a GPU has, are left out, since printing JSON recurs.
constexpr int kMaxDepth = 100;

absl::StatusOr<int64_t> ReadInteger(const Json& object, const std::string& key, int64_t minimum) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer() || found->get<int64_t>() < minimum) {
    return absl::InvalidArgumentError(
        absl::StrCat("properties.", key, ": must be an integer of at least ", minimum));
  }
  return found->get<int64_t>();
}

absl::StatusOr<std::string> ReadString(const Json& object, const std::string& path,
                                       const std::string& key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string() || Slug(found->get<std::string>()).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, key, ": must be a string with a letter or a digit"));
  }
  return found->get<std::string>();
}

}  // namespace

absl::StatusOr<DeviceProfile> DeviceProfile::Parse(std::string_view json) {
  Json file;
  try {
    file = Json::parse(
        json, [](int depth, Json::parse_event_t, const Json&) { return depth <= kMaxDepth; });
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("profile: must be a JSON object: ", error.what()));
  }
  if (!file.is_object()) return absl::InvalidArgumentError("profile: must be a JSON object");
  DeviceProfile profile;
  const Json* properties = &file;
  const auto wrapped = file.find("properties");
  if (wrapped != file.end()) {
    if (!wrapped->is_object()) {
      return absl::InvalidArgumentError("properties: must be an object");
    }
    properties = &*wrapped;
    ASSIGN_OR_RETURN(profile.name, ReadString(file, "", "name"));
  }
  Environment& environment = profile.environment;
  environment.profile = true;
  ASSIGN_OR_RETURN(environment.gpu_model, ReadString(*properties, "properties.", "deviceName"));
  if (profile.name.empty()) profile.name = Slug(environment.gpu_model);
  ASSIGN_OR_RETURN(const int64_t version, ReadInteger(*properties, "deviceVer", 100));
  ASSIGN_OR_RETURN(const int64_t sm_count, ReadInteger(*properties, "multiProcessorCount", 1));
  ASSIGN_OR_RETURN(profile.memory_bytes, ReadInteger(*properties, "totalGlobalMem", 1));
  environment.cc_major = static_cast<int>(version / 100);
  environment.cc_minor = static_cast<int>(version % 100 / 10);
  environment.sm_count = static_cast<int>(sm_count);
  profile.properties_json = properties->dump();
  return profile;
}

absl::StatusOr<DeviceProfile> DeviceProfile::Load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::NotFoundError(absl::StrCat("profile ", path, ": cannot be read"));
  }
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("profile ", path, ": must be at most ", kMaxFileBytes, " bytes"));
  }
  absl::StatusOr<DeviceProfile> profile = Parse(text);
  if (!profile.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("profile ", path, ": ", profile.status().message()));
  }
  return profile;
}

std::string ToLine(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace convtune::worker::device
