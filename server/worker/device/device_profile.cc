#include "server/worker/device/device_profile.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/status_macros.h"
#include "proto/model/environment.h"

namespace convtune::worker::device {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

constexpr size_t kMaxFileBytes = size_t{1} << 20;
// Above this a double does not hold every integer.
constexpr double kMaxInteger = 9007199254740992.0;

std::string Compact(const Value& value);

// Keys in order, so that equal profiles give equal text.
std::string Compact(const Struct& object) {
  std::map<std::string, const Value*> fields;
  for (const auto& [key, value] : object.fields()) {
    fields[key] = &value;
  }
  std::string text = "{";
  for (const auto& [key, value] : fields) {
    absl::StrAppend(&text, text.size() > 1 ? "," : "", JsonQuote(key), ":", Compact(*value));
  }
  return text + "}";
}

// cuDNN reads the numbers as integers and rejects 1e+09 in their place.
std::string Compact(const Value& value) {
  switch (value.kind_case()) {
    case Value::kNumberValue:
      return std::nearbyint(value.number_value()) == value.number_value() &&
                     std::abs(value.number_value()) <= kMaxInteger
                 ? absl::StrFormat("%.0f", value.number_value())
                 : absl::StrFormat("%.17g", value.number_value());
    case Value::kStringValue:
      return JsonQuote(value.string_value());
    case Value::kBoolValue:
      return value.bool_value() ? "true" : "false";
    case Value::kStructValue:
      return Compact(value.struct_value());
    case Value::kListValue: {
      std::string text = "[";
      for (const Value& element : value.list_value().values()) {
        absl::StrAppend(&text, text.size() > 1 ? "," : "", Compact(element));
      }
      return text + "]";
    }
    default:
      return "null";
  }
}

absl::StatusOr<int64_t> ReadInteger(const Struct& object, const std::string& key, int64_t minimum) {
  const auto found = object.fields().find(key);
  if (found == object.fields().end() || found->second.kind_case() != Value::kNumberValue ||
      std::nearbyint(found->second.number_value()) != found->second.number_value() ||
      found->second.number_value() < static_cast<double>(minimum) ||
      found->second.number_value() > kMaxInteger) {
    return absl::InvalidArgumentError(
        absl::StrCat("properties.", key, ": must be an integer of at least ", minimum));
  }
  return static_cast<int64_t>(found->second.number_value());
}

absl::StatusOr<std::string> ReadString(const Struct& object, const std::string& path,
                                       const std::string& key) {
  const auto found = object.fields().find(key);
  if (found == object.fields().end() || found->second.kind_case() != Value::kStringValue ||
      Slug(found->second.string_value()).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, key, ": must be a string with a letter or a digit"));
  }
  return found->second.string_value();
}

}  // namespace

absl::StatusOr<DeviceProfile> DeviceProfile::Parse(std::string_view json) {
  Struct file;
  const auto parsed = google::protobuf::util::JsonStringToMessage(std::string(json), &file);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("profile: must be a JSON object: ", std::string(parsed.message())));
  }
  DeviceProfile profile;
  const Struct* properties = &file;
  const auto wrapped = file.fields().find("properties");
  if (wrapped != file.fields().end()) {
    if (wrapped->second.kind_case() != Value::kStructValue) {
      return absl::InvalidArgumentError("properties: must be an object");
    }
    properties = &wrapped->second.struct_value();
    ASSIGN_OR_RETURN(profile.name, ReadString(file, "", "name"));
  }
  ASSIGN_OR_RETURN(profile.device_name, ReadString(*properties, "properties.", "deviceName"));
  if (profile.name.empty()) {
    profile.name = Slug(profile.device_name);
  }
  ASSIGN_OR_RETURN(const int64_t version, ReadInteger(*properties, "deviceVer", 100));
  ASSIGN_OR_RETURN(const int64_t sm_count, ReadInteger(*properties, "multiProcessorCount", 1));
  ASSIGN_OR_RETURN(profile.memory_bytes, ReadInteger(*properties, "totalGlobalMem", 1));
  profile.cc_major = static_cast<int>(version / 100);
  profile.cc_minor = static_cast<int>(version % 100 / 10);
  profile.sm_count = static_cast<int>(sm_count);
  profile.properties_json = Compact(*properties);
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

std::string JsonQuote(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&result, "\\u%04x", static_cast<unsigned char>(c));
    } else {
      result += c;
    }
  }
  return result + '"';
}

}  // namespace convtune::worker::device
