#include "client/cli/app/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "tests/unit/cli/fake_daemon.h"

namespace convtune::cli::app {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class SettingsTest : public testing::Test {
 protected:
  SettingsTest() { env_["XDG_CONFIG_HOME"] = folder_.path(); }

  void WriteConfig(const std::string& text) {
    std::filesystem::create_directories(folder_.path("convtune"));
    std::ofstream(folder_.path("convtune/config.toml")) << text;
  }

  absl::StatusOr<Settings> TryToResolve() {
    return Settings::Resolve(flags_, TestIo({.env = env_}).io);
  }
  Settings Resolve() {
    const auto settings = TryToResolve();
    EXPECT_TRUE(settings.ok()) << settings.status();
    return settings.value_or(Settings());
  }
  std::string Error() { return std::string(TryToResolve().status().message()); }

  TempDir folder_;
  std::map<std::string, std::string> env_;
  SettingFlags flags_;
};

TEST_F(SettingsTest, DefaultsAreASocketAndThirtySeconds) {
  const Settings settings = Resolve();
  EXPECT_TRUE(settings.client.address.unix_socket);
  EXPECT_EQ(settings.client.timeout, absl::Seconds(30));
  EXPECT_FALSE(settings.timeout.has_value());
}

TEST_F(SettingsTest, TheFileBeatsDefaultsTheEnvironmentTheFileAndFlagsTheEnvironment) {
  WriteConfig("address = \"unix:/from/file\"\ntimeout = \"5s\"\nenvironment = \"file\"\n");
  EXPECT_EQ(Resolve().client.address.ToText(), "unix:/from/file");
  EXPECT_EQ(Resolve().client.timeout, absl::Seconds(5));
  env_["CONVTUNE_ADDRESS"] = "unix:/from/env";
  EXPECT_EQ(Resolve().client.address.ToText(), "unix:/from/env");
  EXPECT_EQ(Resolve().environment, "file");
  flags_["address"] = "unix:/from/flag";
  EXPECT_EQ(Resolve().client.address.ToText(), "unix:/from/flag");
}

TEST_F(SettingsTest, AnEmptyVariableIsNotSet) {
  WriteConfig("environment = \"file\"\n");
  env_["CONVTUNE_ENVIRONMENT"] = "";
  EXPECT_EQ(Resolve().environment, "file");
}

TEST_F(SettingsTest, TheConfigFlagNamesAnotherFile) {
  WriteConfig("environment = \"default\"\n");
  std::ofstream(folder_.path("other.toml")) << "environment = \"other\"\n";
  flags_["config"] = folder_.path("other.toml");
  EXPECT_EQ(Resolve().environment, "other");
}

TEST_F(SettingsTest, AnUnknownSettingIsRefusedByName) {
  WriteConfig("adress = \"unix:/x\"\n");
  EXPECT_THAT(Error(), HasSubstr("adress"));
}

TEST_F(SettingsTest, AFileHasNoSections) {
  WriteConfig("[daemon]\naddress = \"unix:/x\"\n");
  EXPECT_THAT(Error(), HasSubstr("there are no sections, such as [daemon]"));
}

TEST_F(SettingsTest, ABadValueSaysWhereItWasSet) {
  env_["CONVTUNE_TIMEOUT"] = "soon";
  EXPECT_THAT(Error(), StartsWith("CONVTUNE_TIMEOUT: must be"));
}

}  // namespace
}  // namespace convtune::cli::app
