// The script of faults of the simulated GPU that is in this process.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace convtune::simgpu {

inline const std::string& FaultsPath() {
  static const std::string path = ::testing::TempDir() + "/faults-" + std::to_string(getpid());
  return path;
}

// The variable is read once, when the first fault is asked for.
inline const bool kFaultsAreSet =
    setenv("SIMGPU_FAULTS", FaultsPath().c_str(), 1) == 0;  // NOLINT: before all tests

// From now on these are the faults, and none has fired.
inline void WriteFaults(const std::string& lines) {
  std::ofstream(FaultsPath()) << lines;
  std::ofstream(FaultsPath() + ".fired");
}

// The lines that fired.
inline std::string FiredFaults() {
  std::ostringstream text;
  text << std::ifstream(FaultsPath() + ".fired").rdbuf();
  return text.str();
}

// A Faults is a script for as long as the object lives.
class Faults {
 public:
  explicit Faults(const std::string& lines) { WriteFaults(lines); }
  ~Faults() { std::filesystem::remove(FaultsPath()); }
  static int64_t Fired() {
    const std::string fired = FiredFaults();
    return std::count(fired.begin(), fired.end(), '\n');
  }
};

}  // namespace convtune::simgpu
