// A LegacyConvolution is one convolution of cuDNN's legacy API.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/candidate.h"
#include "server/worker/cudnn/owned.h"

namespace convtune::worker::cudnn {

// Device memory of the three tensors.
struct ConvPointers {
  void* x = nullptr;
  void* w = nullptr;
  void* y = nullptr;
};

// The report of cudnnFind* or cudnnGet*_v7 on one algorithm; the latter has no time.
struct FoundAlgorithm {
  LegacyAlgorithm id;
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  double time_us = 0;
  int64_t workspace_bytes = 0;
  bool deterministic = false;
};

// A LegacyApi is the part of cuDNN that the legacy search calls; tests fake it.
class LegacyApi {
 public:
  virtual ~LegacyApi() = default;

  // cudnnGetConvolution*Algorithm_v7: all algorithms with the time that cuDNN
  // expects, fastest first. Runs nothing.
  virtual absl::StatusOr<std::vector<FoundAlgorithm>> Expected(cudnnMathType_t math_type) = 0;
  // Largest workspace of all algorithms that needs no more than `limit` bytes.
  virtual absl::StatusOr<int64_t> LargestWorkspace(cudnnMathType_t math_type, int64_t limit) = 0;
  // cudnnFindConvolution*AlgorithmEx: runs everything, and writes the output.
  virtual absl::StatusOr<std::vector<FoundAlgorithm>> Find(cudnnMathType_t math_type,
                                                           const ConvPointers& tensors,
                                                           void* workspace,
                                                           int64_t workspace_bytes) = 0;
  virtual absl::StatusOr<int64_t> WorkspaceBytes(const LegacyAlgorithm& algorithm) = 0;
};

// Says why the legacy API cannot express the problem; empty if it can.
std::string LegacyObstacle(const ConvProblem& problem);

// Needs a GPU. Not thread-safe.
class LegacyConvolution : public LegacyApi {
 public:
  // `handle` outlives the object. REQUIRES: LegacyObstacle(problem) is empty.
  static absl::StatusOr<std::unique_ptr<LegacyConvolution>> Create(const ConvProblem& problem,
                                                                   cudnnHandle_t handle);

  absl::StatusOr<std::vector<FoundAlgorithm>> Expected(cudnnMathType_t math_type) override;
  absl::StatusOr<int64_t> LargestWorkspace(cudnnMathType_t math_type, int64_t limit) override;
  absl::StatusOr<std::vector<FoundAlgorithm>> Find(cudnnMathType_t math_type,
                                                   const ConvPointers& tensors, void* workspace,
                                                   int64_t workspace_bytes) override;
  absl::StatusOr<int64_t> WorkspaceBytes(const LegacyAlgorithm& algorithm) override;
  // Puts one run on the handle's stream.
  absl::Status Launch(const LegacyAlgorithm& algorithm, const ConvPointers& tensors,
                      void* workspace, int64_t workspace_bytes);

 private:
  using TensorPtr = Owned<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>;

  LegacyConvolution(const ConvProblem& problem, cudnnHandle_t handle)
      : operation_(problem.operation()),
        double_scale_(problem.compute_type() == DataType::kF64),
        handle_(handle) {}

  absl::Status Init(const ConvProblem& problem);
  absl::Status SetMathType(int math_type);
  // Calls `visit` with what cuDNN has for the operation, the tensors that it reads, in the
  // order in which cuDNN's functions take them, and the one that it writes.
  template <typename Visit>
  auto ForOperation(const ConvPointers& tensors, const Visit& visit) const;
  absl::StatusOr<int64_t> WorkspaceOf(int algorithm);

  const Operation operation_;
  const bool double_scale_;  // alpha and beta are doubles
  const cudnnHandle_t handle_;
  TensorPtr x_, y_;
  Owned<cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor> w_;
  Owned<cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor> conv_;
};

}  // namespace convtune::worker::cudnn
