#include "server/worker/device/device_profile.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace convtune::worker::device {
namespace {

// Its keys are in order, so that equal profiles give equal text.
using Json = nlohmann::json;

constexpr size_t kMaxFileBytes = size_t{1} << 20;
constexpr int kMaxDepth = 100;
// Above this a double does not hold every integer.
constexpr double kMaxInteger = 9007199254740992.0;

// Makes integers of whole numbers: cuDNN rejects 1e+09 in their place.
absl::Status UseIntegers(int depth, Json* value) {
  if (depth > kMaxDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat("properties: must be at most ", kMaxDepth, " levels deep"));
  }
  if (value->is_number_float()) {
    const double number = value->get<double>();
    if (std::nearbyint(number) == number && std::abs(number) <= kMaxInteger) {
      *value = static_cast<int64_t>(number);
    }
  }
  if (!value->is_structured()) return absl::OkStatus();
  for (Json& element : *value) RETURN_IF_ERROR(UseIntegers(depth + 1, &element));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ReadInteger(const Json& object, const std::string& key, int64_t minimum) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer() ||
      found->get<double>() < static_cast<double>(minimum) || found->get<double>() > kMaxInteger) {
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
    file = Json::parse(json);
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("profile: must be a JSON object: ", error.what()));
  }
  if (!file.is_object()) return absl::InvalidArgumentError("profile: must be a JSON object");
  DeviceProfile profile;
  Json* properties = &file;
  const auto wrapped = file.find("properties");
  if (wrapped != file.end()) {
    if (!wrapped->is_object()) {
      return absl::InvalidArgumentError("properties: must be an object");
    }
    properties = &*wrapped;
    ASSIGN_OR_RETURN(profile.name, ReadString(file, "", "name"));
  }
  RETURN_IF_ERROR(UseIntegers(0, properties));
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
