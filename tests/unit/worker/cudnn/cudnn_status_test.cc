#include "server/worker/cudnn/cudnn_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/worker/cudnn/descriptor.h"
#include "tests/unit/worker/device/test_profile.h"

namespace convtune::worker::cudnn {
namespace {

using testing::HasSubstr;

TEST(CudnnStatusTest, AMessageHoldsNoTextThatSuccessesLeft) {
  const auto backend = device::TestBackend();
  const auto opened =
      backend->Open(ConvProblem::Parse("fwd,x=16x64x56x56,w=64x64x3x3,pad=1,nhwc,i8").value(), 0)
          .value();
  // Its heuristics leave kilobytes of warnings.
  worker::v1::OpenProblem request;
  request.set_listing(worker::v1::LISTING_HEURISTICS);
  request.set_graph_api(true);
  opened->List(request, SteadyTime::InfiniteFuture(), [](const Candidate&) { return true; });
  cudnnTensorDescriptor_t tensor = nullptr;
  ASSERT_EQ(cudnnCreateTensorDescriptor(&tensor), CUDNN_STATUS_SUCCESS);
  const int sizes[CUDNN_DIM_MAX + 1] = {};
  // Of no text of its own.
  const absl::Status refused = ToStatus(
      cudnnSetTensorNdDescriptor(tensor, CUDNN_DATA_FLOAT, CUDNN_DIM_MAX + 1, sizes, sizes),
      "set x");
  EXPECT_EQ(refused, absl::UnimplementedError("set x: CUDNN_STATUS_NOT_SUPPORTED"));
  cudnnDestroyTensorDescriptor(tensor);
}

TEST(CudnnStatusTest, AMessageHoldsTheTextOfItsOwnError) {
  Descriptor tensor = Descriptor::Create(CUDNN_BACKEND_TENSOR_DESCRIPTOR).value();
  EXPECT_THAT(std::string(tensor.Finalize().message()), HasSubstr("nbDims"));
}

}  // namespace
}  // namespace convtune::worker::cudnn
