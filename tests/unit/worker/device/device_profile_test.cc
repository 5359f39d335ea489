#include "server/worker/device/device_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <string>

#include "absl/strings/str_replace.h"
#include "server/worker/device/device_info.h"
#include "tests/unit/worker/device/test_profile.h"

namespace convtune::worker::device {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(DeviceProfileTest, ReadsBareProperties) {
  const DeviceProfile profile = TestProfile();
  EXPECT_EQ(profile.name, "nvidia-h200");
  EXPECT_EQ(profile.environment.gpu_model, "NVIDIA H200");
  EXPECT_EQ(profile.environment.cc_major, 9);
  EXPECT_EQ(profile.environment.cc_minor, 0);
  EXPECT_EQ(profile.environment.sm_count, 132);
  EXPECT_EQ(profile.memory_bytes, 150000000000);
}

TEST(DeviceProfileTest, ReadsTheWrappedForm) {
  const DeviceProfile profile =
      DeviceProfile::Parse(
          std::string(R"({"name":"lab-h200","source":"a data sheet","properties":)") +
          kTestProfile + "}")
          .value();
  EXPECT_EQ(profile.name, "lab-h200");
  EXPECT_THAT(profile.properties_json, Not(HasSubstr("source")));
}

TEST(DeviceProfileTest, PrintsIntegersAsIntegers) {
  const DeviceProfile profile = TestProfile();
  EXPECT_THAT(profile.properties_json, HasSubstr(R"("totalGlobalMem":150000000000)"));
  EXPECT_THAT(profile.properties_json, HasSubstr(R"("maxGridSize":[2147483647,65535,65535])"));
}

TEST(DeviceProfileTest, LeavesOutWhatIsTooDeepAndRefusesWhatIsNoJson) {
  const std::string deep = std::string(400'000, '[') + std::string(400'000, ']');
  const DeviceProfile profile =
      DeviceProfile::Parse(
          absl::StrReplaceAll(kTestProfile,
                              {{"{\"deviceVer\"", "{\"x\":" + deep + ",\"deviceVer\""}}))
          .value();
  EXPECT_LT(profile.properties_json.size(), 1000u);
  EXPECT_THAT(std::string(DeviceProfile::Parse("{\"x\":1").status().message()),
              HasSubstr("must be a JSON object"));
}

TEST(DeviceProfileTest, ItsOwnPropertiesReadBackTheSame) {
  const DeviceProfile profile = TestProfile();
  EXPECT_EQ(DeviceProfile::Parse(profile.properties_json)->properties_json,
            profile.properties_json);
}

TEST(DeviceProfileTest, ComputeCapabilityWithTwoDigits) {
  const DeviceProfile profile =
      DeviceProfile::Parse(
          absl::StrReplaceAll(kTestProfile, {{"\"deviceVer\":900", "\"deviceVer\":1030"}}))
          .value();
  EXPECT_EQ(profile.environment.cc_major, 10);
  EXPECT_EQ(profile.environment.cc_minor, 3);
}

TEST(DeviceProfileTest, ErrorsNameTheField) {
  const auto error_of = [](const std::string& from, const std::string& to) {
    return std::string(
        DeviceProfile::Parse(absl::StrReplaceAll(kTestProfile, {{from, to}})).status().message());
  };
  EXPECT_THAT(error_of("\"deviceVer\":900", "\"deviceVer\":\"9\""),
              HasSubstr("properties.deviceVer"));
  EXPECT_THAT(error_of("\"multiProcessorCount\":132", "\"multiProcessorCount\":0"),
              HasSubstr("properties.multiProcessorCount"));
  for (const char* number : {"1.5", "1.5e11"}) {
    EXPECT_THAT(
        error_of("\"totalGlobalMem\":150000000000", std::string("\"totalGlobalMem\":") + number),
        HasSubstr("properties.totalGlobalMem: must be an integer"));
  }
  EXPECT_THAT(error_of("NVIDIA H200", ""), HasSubstr("properties.deviceName"));
  EXPECT_THAT(std::string(DeviceProfile::Parse("[1]").status().message()), HasSubstr("JSON"));
  EXPECT_THAT(
      std::string(DeviceProfile::Parse(R"({"name":"x","properties":3})").status().message()),
      HasSubstr("properties: must be an object"));
}

TEST(DeviceProfileTest, MissingFileIsNotFound) {
  EXPECT_EQ(DeviceProfile::Load("/nonexistent/profile.json").status().code(),
            absl::StatusCode::kNotFound);
}

TEST(ToLineTest, EscapesWhatJsonForbids) {
  EXPECT_EQ(ToLine("a\"b\\c\n\x01"), R"("a\"b\\c\n\u0001")");
  EXPECT_EQ(ToLine("a\xff"), "\"a\xef\xbf\xbd\"");
}

TEST(DeviceInfoTest, ProfileIsAnEnvironmentOfItsOwn) {
  const DeviceProfile profile = TestProfile();
  const DeviceInfo info = DescribeProfile(profile);
  EXPECT_EQ(info.name, "profile:nvidia-h200");
  EXPECT_THAT(info.environment.ToText(), HasSubstr("profile:nvidia-h200,cc=9.0,sms=132,cudnn=9."));
  EXPECT_TRUE(Environment::Parse(info.environment.ToText()).ok());
  EXPECT_EQ(info.provenance.driver_version, "");
}

TEST(DeviceInfoTest, ProbeLineOfAFailedDeviceHasItsError) {
  DeviceInfo info;
  info.name = "gpu:7";
  EXPECT_EQ(
      ToProbeJson(info, "no \"such\" GPU"),
      R"({"cublaslt_build":"","cuda_version":"","driver_version":"","environment":"",)"
      R"("error":"no \"such\" GPU","gpu_model":"","gpu_uuid":"","memory_bytes":0,"name":"gpu:7","nvrtc_build":"","pci_bus_id":""})");
}

}  // namespace
}  // namespace convtune::worker::device
