// RuleCases: a table of tests/data/rules, whose cases other languages run too.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"

namespace convtune {

// The columns of each case.
inline std::vector<std::vector<std::string>> RuleCases(const std::string& table) {
  std::ifstream file(std::string(CONVTUNE_RULE_CASES "/") + table);
  std::vector<std::vector<std::string>> cases;
  std::string line;
  while (std::getline(file, line)) {
    if (!line.empty() && line[0] != '#') cases.push_back(absl::StrSplit(line, '\t'));
  }
  EXPECT_GT(cases.size(), 5U) << table;
  return cases;
}

}  // namespace convtune
