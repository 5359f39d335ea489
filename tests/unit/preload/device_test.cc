#include "client/preload/device.h"

#include <gtest/gtest.h>

#include <string>

namespace convtune::preload {
namespace {

// What is read of a text that has these members; empty: it is refused.
std::string Read(const std::string& members) {
  snapshot::EnvironmentKey key;
  const std::string json = "{" + members + "}";
  if (!EnvironmentOfProperties(json, &key)) return "";
  return std::to_string(key.cc_major) + "." + std::to_string(key.cc_minor) + "," +
         std::to_string(key.sm_count);
}

TEST(EnvironmentOfProperties, EachMemberOnceAndPlain) {
  const std::string name = R"("deviceName":"NVIDIA H200")";
  const std::string version = R"("deviceVer":900)";
  const std::string sms = R"("multiProcessorCount":132)";
  EXPECT_EQ(Read(name + "," + version + "," + sms), "9.0,132");
  EXPECT_EQ(Read(R"( "deviceVer" :  1030 , "x":"deviceVer", "deviceName"  : "a" ,)" + sms),
            "10.3,132");
  EXPECT_EQ(Read(name + "," + version), "");
  EXPECT_EQ(Read(name + "," + version + "," + version + "," + sms), "");
  for (const char* wrong : {"-900", "900.5", "9e2", "\"900\"", "25600", "99999999999", ""}) {
    EXPECT_EQ(Read(name + "," + sms + ",\"deviceVer\":" + wrong), "") << wrong;
  }
  for (const char* wrong : {R"("a\u0020b")", "5", R"("a)", R"("")"}) {
    EXPECT_EQ(Read(version + "," + sms + ",\"deviceName\":" + wrong), "") << wrong;
  }
}

}  // namespace
}  // namespace convtune::preload
