#include "proto/base/default_paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/unit/temp_dir.h"

namespace convtune {
namespace {

TEST(FindProfile, FileIsTakenAsItIs) {
  TempDir dir;
  std::ofstream(dir.path("mine.json")) << "{}";
  EXPECT_EQ(FindProfile(dir.path("mine.json")).value(), dir.path("mine.json"));
}

TEST(FindProfile, NameIsLookedUpWithAndWithoutItsPrefix) {
  const auto found = FindProfile("nvidia-h200");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(*found, testing::EndsWith("/nvidia-h200.json"));
  EXPECT_EQ(FindProfile("profile:nvidia-h200").value(), *found);
}

TEST(FindProfile, UnknownNameIsNotFound) {
  for (const char* name : {"nvidia-none", "../profiles/nvidia-h200", ""}) {
    EXPECT_EQ(FindProfile(name).status().code(), absl::StatusCode::kNotFound) << name;
  }
}

}  // namespace
}  // namespace convtune
