#include "server/worker/device/device_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace convtune::worker::device {
namespace {

using testing::HasSubstr;

std::string BuiltFor() {
  return absl::StrCat(CUDART_VERSION / 1000, ".", CUDART_VERSION % 1000 / 10);
}

TEST(DriverStatusTest, ADriverThatIsTooOldIsSaidWithBothVersionsAndWhatHelps) {
  const absl::Status status = DriverStatus(cudaErrorInsufficientDriver, 12040);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(
      status.message(),
      absl::StrCat("the driver is for CUDA up to 12.4, this worker is built for CUDA ", BuiltFor(),
                   ": install a newer driver, or use a build for CUDA 12 "
                   "(-DCONVTUNE_CUDA=12)"));
}

TEST(DriverStatusTest, NoBuildIsOfferedThatThereIsNot) {
  EXPECT_EQ(DriverStatus(cudaErrorInsufficientDriver, 11080).message(),
            absl::StrCat("the driver is for CUDA up to 11.8, this worker is built for CUDA ",
                         BuiltFor(), ": install a newer driver"));
}

TEST(DriverStatusTest, WithoutADriverOrACardNothingIsWrong) {
  EXPECT_TRUE(DriverStatus(cudaErrorInsufficientDriver, 0).ok());
  EXPECT_TRUE(DriverStatus(cudaErrorNoDevice, 13000).ok());
  EXPECT_TRUE(DriverStatus(cudaErrorStubLibrary, 0).ok());
  EXPECT_TRUE(DriverStatus(cudaSuccess, 13000).ok());
}

TEST(DriverStatusTest, OtherErrorsAreCudas) {
  EXPECT_THAT(std::string(DriverStatus(cudaErrorSystemNotReady, 13000).message()),
              HasSubstr("cudaErrorSystemNotReady"));
}

}  // namespace
}  // namespace convtune::worker::device
