#include "server/worker/device/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace convtune::worker::device {
namespace {

using testing::HasSubstr;

TEST(KernelsTest, TextIsForEveryCardThatCudnnKnows) {
  const std::string text = kKernelsPtx;
  EXPECT_THAT(text, HasSubstr(".version 5.0"));
  EXPECT_THAT(text, HasSubstr(".target sm_50"));
  for (const char* name : {"blocking", "stamp", "sweep", "gather", "scan"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat(".visible .entry convtune_", name, "(")));
  }
}

// What the driver's compiler does on a GPU, as far as it can be done without one.
TEST(KernelsTest, Assemble) {
  const std::string ptxas = CONVTUNE_PTXAS;
  if (ptxas.empty()) {
    GTEST_SKIP() << "ptxas is not there (deploy/install-deps --tests brings it)";
  }
  const std::string source = testing::TempDir() + "convtune_kernels.ptx";
  std::ofstream(source) << kKernelsPtx;
  for (const char* arch : {"sm_75", "sm_80", "sm_90"}) {
    const std::string command = absl::StrCat("'", ptxas, "' --warning-as-error --gpu-name ", arch,
                                             " -o /dev/null ", source);
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
}

}  // namespace
}  // namespace convtune::worker::device
