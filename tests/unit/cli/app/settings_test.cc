#include "client/cli/app/settings.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

namespace convtune::cli::app {
namespace {

class SettingsTest : public testing::Test {
 protected:
  SettingsTest() {
    std::string name =
        (std::filesystem::temp_directory_path() / "convtune-settings-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    env_["XDG_CONFIG_HOME"] = folder_;
  }
  ~SettingsTest() override { std::filesystem::remove_all(folder_); }

  void WriteConfig(const std::string& text) {
    std::filesystem::create_directories(folder_ + "/convtune");
    std::ofstream(folder_ + "/convtune/config.toml") << text;
  }

  absl::StatusOr<Settings> Resolve() {
    std::istringstream in;
    std::ostringstream out;
    output::Io io{in,
                  out,
                  out,
                  false,
                  false,
                  120,
                  [this](const std::string& name) -> std::optional<std::string> {
                    const auto it = env_.find(name);
                    if (it == env_.end()) return std::nullopt;
                    return it->second;
                  }};
    return Settings::Resolve(flags_, io);
  }

  std::string folder_;
  std::map<std::string, std::string> env_;
  SettingFlags flags_;
};

TEST_F(SettingsTest, DefaultsAreASocketAndThirtySeconds) {
  const auto settings = Resolve();
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_TRUE(settings->client.address.unix_socket);
  EXPECT_EQ(settings->client.timeout, absl::Seconds(30));
  EXPECT_FALSE(settings->timeout.has_value());
}

TEST_F(SettingsTest, TheFileBeatsDefaults) {
  WriteConfig("address = \"unix:/from/file\"\ntimeout = \"5s\"\n");
  const auto settings = Resolve();
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->client.address.ToText(), "unix:/from/file");
  EXPECT_EQ(settings->client.timeout, absl::Seconds(5));
}

TEST_F(SettingsTest, TheEnvironmentBeatsTheFile) {
  WriteConfig("address = \"unix:/from/file\"\nenvironment = \"file\"\n");
  env_["CONVTUNE_ADDRESS"] = "unix:/from/env";
  const auto settings = Resolve();
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->client.address.ToText(), "unix:/from/env");
  EXPECT_EQ(settings->environment, "file");
}

TEST_F(SettingsTest, FlagsBeatTheEnvironment) {
  WriteConfig("address = \"unix:/from/file\"\n");
  env_["CONVTUNE_ADDRESS"] = "unix:/from/env";
  flags_["address"] = "unix:/from/flag";
  const auto settings = Resolve();
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->client.address.ToText(), "unix:/from/flag");
}

TEST_F(SettingsTest, AnEmptyVariableIsNotSet) {
  WriteConfig("environment = \"file\"\n");
  env_["CONVTUNE_ENVIRONMENT"] = "";
  EXPECT_EQ(Resolve()->environment, "file");
}

TEST_F(SettingsTest, TheConfigFlagNamesAnotherFile) {
  WriteConfig("environment = \"default\"\n");
  std::ofstream(folder_ + "/other.toml") << "environment = \"other\"\n";
  flags_["config"] = folder_ + "/other.toml";
  EXPECT_EQ(Resolve()->environment, "other");
}

TEST_F(SettingsTest, AnUnknownSettingIsRefusedByName) {
  WriteConfig("adress = \"unix:/x\"\n");
  const auto settings = Resolve();
  ASSERT_FALSE(settings.ok());
  EXPECT_NE(settings.status().message().find("adress"), std::string::npos);
}

TEST_F(SettingsTest, AFileHasNoSections) {
  WriteConfig("[daemon]\naddress = \"unix:/x\"\n");
  const auto settings = Resolve();
  ASSERT_FALSE(settings.ok());
  EXPECT_NE(settings.status().message().find("there are no sections, such as [daemon]"),
            std::string::npos)
      << settings.status();
}

TEST_F(SettingsTest, ABadValueSaysWhereItWasSet) {
  env_["CONVTUNE_TIMEOUT"] = "soon";
  const auto settings = Resolve();
  ASSERT_FALSE(settings.ok());
  EXPECT_EQ(std::string(settings.status().message()).rfind("CONVTUNE_TIMEOUT: must be", 0), 0U)
      << settings.status();
}

}  // namespace
}  // namespace convtune::cli::app
