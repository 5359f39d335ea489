// A program that has loaded a cuDNN and a driver, as libconvtune finds them.
#include "client/cpp/program.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/unit/temp_dir.h"

namespace convtune::client {
namespace {

class FindProgramTest : public ::testing::Test {
 protected:
  void TearDown() override {
    for (void* handle : {cudnn_, driver_}) {
      if (handle != nullptr) dlclose(handle);
    }
    unsetenv("FAKE_CUDNN_VERSION");
    unsetenv("FAKE_GPUS");
  }
  void LoadCudnn(const char* version) {
    setenv("FAKE_CUDNN_VERSION", version, 1);
    const std::string path = folder_.path("libcudnn.so.9");
    std::filesystem::copy_file(CONVTUNE_FAKE_CUDNN, path);
    cudnn_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(cudnn_, nullptr) << dlerror();
  }
  // Without a context; empty: the one GPU has one.
  void LoadDriver(const std::string& gpus) {
    if (!gpus.empty()) setenv("FAKE_GPUS", gpus.c_str(), 1);
    driver_ = dlopen(CONVTUNE_FAKE_DRIVER, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(driver_, nullptr) << dlerror();
  }
  static Environment Found(Environment program = {}) {
    FindProgram(&program);
    return program;
  }

  TempDir folder_;
  void* cudnn_ = nullptr;
  void* driver_ = nullptr;
};

TEST_F(FindProgramTest, NothingIsLoadedAndNothingFound) {
  const Environment found = Found();
  EXPECT_EQ(found.cudnn_version, "");
  EXPECT_EQ(found.library_configuration, "");
  EXPECT_EQ(found.gpu_model, "");
  EXPECT_EQ(found.sm_count, 0);
}

TEST_F(FindProgramTest, TheCudnnThatIsLoadedIsAsked) {
  LoadCudnn("91200");
  EXPECT_EQ(Found().cudnn_version, "9.12.0");
  EXPECT_EQ(Found().library_configuration, "graph_jit_only");
  std::ofstream(folder_.path("libcudnn_engines_precompiled.so.9")) << "engines";
  EXPECT_EQ(Found().library_configuration, "full");
  EXPECT_EQ(Found().gpu_model, "");
}

TEST_F(FindProgramTest, AVersionBeforeNineIsReadAsItsOwn) {
  LoadCudnn("8902");
  EXPECT_EQ(Found().cudnn_version, "8.9.2");
  EXPECT_EQ(Found().library_configuration, "");
}

TEST_F(FindProgramTest, TheGpuIsThatOfTheContext) {
  LoadDriver("");
  EXPECT_EQ(Found().gpu_model, "NVIDIA H200");
  EXPECT_EQ(Found().compute_capability, "9.0");
  EXPECT_EQ(Found().sm_count, 132);
}

TEST_F(FindProgramTest, WithoutAContextItIsTheOnlyKind) {
  LoadDriver("hh");
  EXPECT_EQ(Found().gpu_model, "NVIDIA H200");
  setenv("FAKE_GPUS", "hl", 1);
  EXPECT_EQ(Found().gpu_model, "");
  EXPECT_EQ(Found().sm_count, 0);
  setenv("FAKE_GPUS", "", 1);
  EXPECT_EQ(Found().gpu_model, "");
}

TEST_F(FindProgramTest, APartThatIsGivenIsNotLookedFor) {
  LoadCudnn("91200");
  LoadDriver("");
  Environment given;
  given.cudnn_version = "9.19.0";
  EXPECT_EQ(Found(given).cudnn_version, "9.19.0");
  EXPECT_EQ(Found(given).library_configuration, "");
  EXPECT_EQ(Found(given).gpu_model, "NVIDIA H200");
  given = {};
  given.profile = true;
  EXPECT_EQ(Found(given).gpu_model, "");
  EXPECT_EQ(Found(given).cudnn_version, "9.12.0");
}

}  // namespace
}  // namespace convtune::client
