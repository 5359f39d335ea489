#include "server/worker/cudnn/cudnn_library.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cctype>
#include <fstream>

namespace convtune::worker::cudnn {
namespace {

TEST(LibraryBuildTest, ReadsTheBuildIdOfThisProgramsCLibrary) {
  const std::string path = FindLibrary(
      "libc.so.6", {"/nonexistent", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64"});
  ASSERT_NE(path, "");
  const std::string build = ElfBuildId(path);
  ASSERT_EQ(build.size(), 12U) << build;
  for (const char c : build) EXPECT_TRUE(isxdigit(static_cast<unsigned char>(c)) != 0) << build;
}

TEST(LibraryBuildTest, WhatIsNoLibraryHasNone) {
  EXPECT_EQ(ElfBuildId("/nonexistent"), "");
  EXPECT_EQ(ElfBuildId("/"), "");
  const std::string path = ::testing::TempDir() + "/no_library";
  std::ofstream(path)
      << "text that is no ELF file, and long enough to have had a header of one.....";
  EXPECT_EQ(ElfBuildId(path), "");
}

TEST(LibraryBuildTest, TheLoadersPathComesFirst) {
  const std::string folder = ::testing::TempDir();
  std::ofstream(folder + "/libnvrtc.so.99") << "x";
  setenv("LD_LIBRARY_PATH", ("/nonexistent:" + folder).c_str(), 1);
  EXPECT_EQ(FindLibrary("libnvrtc.so.99", {"/usr/lib"}), folder + "/libnvrtc.so.99");
  unsetenv("LD_LIBRARY_PATH");
  EXPECT_EQ(FindLibrary("libnvrtc.so.99", {"/usr/lib"}), "");
}

}  // namespace
}  // namespace convtune::worker::cudnn
