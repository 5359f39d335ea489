// ForEachSnapshotFolderCase: the table snapshot_folders.txt of tests/data/rules.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/unit/rule_cases.h"
#include "tests/unit/temp_dir.h"

namespace convtune {

// Brings each case about, with snapshots called `file`, and passes the folder
// that has to be chosen to `check`.
inline void ForEachSnapshotFolderCase(const std::string& file,
                                      const std::function<void(const std::string&)>& check) {
  // A daemon of this machine would be found where a case has nothing.
  const bool has_daemon = access("/var/lib/convtune/snapshot", X_OK) == 0;
  const char* const names[] = {"STATE_DIRECTORY", "XDG_STATE_HOME", "HOME"};
  const std::string home = getenv("HOME") != nullptr ? getenv("HOME") : "/";
  for (const std::vector<std::string>& row : RuleCases("snapshot_folders.txt")) {
    if (row[3] == "-" && has_daemon) continue;
    SCOPED_TRACE(absl::StrJoin(row, " "));
    const TempDir root;
    const auto in_root = [&root](const std::string& text) {
      return absl::StrReplaceAll(text, {{"@", root.path()}});
    };
    for (size_t i = 0; i < 3; ++i) {
      if (row[i] == "-") {
        unsetenv(names[i]);
      } else {
        setenv(names[i], in_root(row[i]).c_str(), 1);
      }
    }
    for (const std::string& there : std::vector<std::string>(absl::StrSplit(row[3], ','))) {
      if (there == "-") continue;
      std::filesystem::create_directories(in_root(there));
      if (!there.ends_with("/")) std::ofstream(in_root(there) + "/" + file) << "x";
    }
    check(in_root(row[4]));
  }
  unsetenv("STATE_DIRECTORY");
  unsetenv("XDG_STATE_HOME");
  setenv("HOME", home.c_str(), 1);
}

}  // namespace convtune
