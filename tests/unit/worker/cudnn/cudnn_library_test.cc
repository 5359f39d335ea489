#include "server/worker/cudnn/cudnn_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/worker/session.h"
#include "tests/unit/worker/device/test_profile.h"

namespace convtune::worker::cudnn {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(DescribeMixtureTest, OneFolderIsNone) {
  EXPECT_THAT(DescribeMixture({}), IsEmpty());
  EXPECT_THAT(DescribeMixture({"/a/libcudnn.so.9", "/a/libcudnn_ops.so.9"}), IsEmpty());
  EXPECT_THAT(DescribeMixture({"/a/libcudnn.so.9.19.0", "/a/libcudnn_ops.so.9.19.0"}), IsEmpty());
}

TEST(DescribeMixtureTest, NamesTheOneOfAnotherFolder) {
  EXPECT_EQ(DescribeMixture({"/a/libcudnn.so.9", "/b/libcudnn_ops.so.9", "/a/libcudnn_cnn.so.9"}),
            "libcudnn_ops.so.9 of folder /b, and libcudnn.so.9, libcudnn_cnn.so.9 of folder /a");
}

TEST(DescribeMixtureTest, NamesTheOneOfAnotherVersion) {
  EXPECT_EQ(DescribeMixture({"/a/libcudnn.so.9.19.0", "/a/libcudnn_ops.so.9.19.0",
                             "/a/libcudnn_heuristic.so.9.8.0"}),
            "libcudnn_heuristic.so.9.8.0 of version 9.8.0, and libcudnn.so.9.19.0, "
            "libcudnn_ops.so.9.19.0 of version 9.19.0");
}

TEST(LoadedCudnnTest, AfterWarmUpAllAreOfOneFolder) {
  const auto backend = device::TestBackend();
  ASSERT_TRUE(WarmUp(backend.get()).ok());
  const std::vector<std::string> files = LoadedCudnnFiles();
  EXPECT_THAT(files, Contains(HasSubstr("/libcudnn.so.")));
  EXPECT_THAT(files, Contains(HasSubstr("/libcudnn_graph.so.")));
  EXPECT_THAT(files, Contains(HasSubstr("/libcudnn_heuristic.so.")));
  EXPECT_EQ(CheckLoadedCudnn(), absl::OkStatus());
}

TEST(LoadedCudnnTest, TheLegacyApisLibrariesCanBeLoadedBeforeItIsUsed) {
  LoadLegacyLibraries();
  EXPECT_THAT(LoadedCudnnFiles(), Contains(HasSubstr("/libcudnn_ops.so.")));
  EXPECT_THAT(LoadedCudnnFiles(), Contains(HasSubstr("/libcudnn_cnn.so.")));
}

}  // namespace
}  // namespace convtune::worker::cudnn
