// The main of every unit test: it takes away what this machine's user has set,
// so that a test meets the same environment wherever it runs. Variables that
// begin with CONVTUNE_TEST_ tell the tests themselves what to do and stay.
#include <gmock/gmock.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace {

bool IsTaken(std::string_view name) {
  if (name.starts_with("CONVTUNE_TEST_")) return false;
  for (const std::string_view prefix :
       {"CONVTUNE", "XDG_", "PG", "STATE_DIRECTORY", "NOTIFY_SOCKET", "WATCHDOG_", "KUBERNETES_",
        "NO_COLOR", "CLICOLOR"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

// Home is an empty folder until the program ends.
class CleanEnvironment {
 public:
  CleanEnvironment() {
    std::vector<std::string> taken;
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string_view text = *variable;
      const std::string_view name = text.substr(0, text.find('='));
      if (IsTaken(name)) taken.emplace_back(name);
    }
    for (const std::string& name : taken) unsetenv(name.c_str());
    if (mkdtemp(home_.data()) == nullptr) abort();
    setenv("HOME", home_.c_str(), 1);
  }
  ~CleanEnvironment() { std::filesystem::remove_all(home_); }
  CleanEnvironment(const CleanEnvironment&) = delete;
  CleanEnvironment& operator=(const CleanEnvironment&) = delete;

 private:
  std::string home_ = "/tmp/convtune-test-home-XXXXXX";
};

}  // namespace

int main(int argc, char** argv) {
  const CleanEnvironment environment;
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
