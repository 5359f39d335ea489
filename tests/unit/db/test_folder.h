// A TestFolder is a TempDir whose files are listed and cleared.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "proto/base/clock.h"
#include "tests/unit/temp_dir.h"

namespace convtune::db {

class TestFolder : public TempDir {
 public:
  std::string File(const std::string& name) const { return path(name); }
  // Sorted names of what is in it, or in a folder of it.
  std::vector<std::string> Names(const std::string& folder = "") const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(File(folder))) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  // Removes all that is in it.
  void Clear() const {
    for (const std::string& name : Names()) std::filesystem::remove_all(File(name));
  }
};

inline std::string ReadWholeFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void WriteWholeFile(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

// Stands still unless it is set.
class ManualClock : public Clock {
 public:
  absl::Time Now() const override { return now; }
  absl::Time now = absl::FromUnixSeconds(1'767'225'600);  // 2026-01-01T00:00:00Z
};

}  // namespace convtune::db
