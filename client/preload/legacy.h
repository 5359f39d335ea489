// The legacy API: cudnnFind*, cudnnFind*Ex and cudnnGet*_v7.
#pragma once

#include <cudnn.h>
#include <stddef.h>
#include <stdint.h>

namespace convtune::preload {

struct Problem;  // problems.h

// The three operations' results differ in the type of `algo` alone.
struct LegacyResult {
  int algo;
  cudnnStatus_t status;
  float time;  // ms; -1: not timed
  size_t memory;
  cudnnDeterminism_t determinism;
  cudnnMathType_t mathType;
  int reserved[3];
};
static_assert(sizeof(LegacyResult) == sizeof(cudnnConvolutionFwdAlgoPerf_t) &&
              sizeof(LegacyResult) == sizeof(cudnnConvolutionBwdDataAlgoPerf_t) &&
              sizeof(LegacyResult) == sizeof(cudnnConvolutionBwdFilterAlgoPerf_t) &&
              offsetof(LegacyResult, mathType) ==
                  offsetof(cudnnConvolutionFwdAlgoPerf_t, mathType));

// A call as the program made it, with forward names: x, w and y are dx and dy,
// dw and dy in the backward operations.
struct LegacyCall {
  int operation;  // 1 fwd, 2 bwd_data, 3 bwd_filter
  bool timed;     // Find and FindEx: the results have times
  cudnnHandle_t handle;
  cudnnTensorDescriptor_t x;
  cudnnFilterDescriptor_t w;
  cudnnConvolutionDescriptor_t convolution;
  cudnnTensorDescriptor_t y;
  int requested;
  int* returned;
  LegacyResult* results;
  size_t workspace_limit;  // SIZE_MAX: none
};

// True if results of math type `candidate` may be given where the descriptor
// has `allowed`: the same or a stricter one, from FMA over DEFAULT and
// TENSOR_OP to ALLOW_CONVERSION.
bool IsMathAllowed(int candidate, cudnnMathType_t allowed);

// Before the real call: gives the stored winners where there are any. False
// where the real function is to be called; `problem` is then what LearnLegacy
// needs, null if the call is nothing that could be learned from.
bool ServeLegacy(const LegacyCall& call, Problem** problem);

// Called after the real function succeeded: tells the daemon of what a search measured, once per
// problem.
void LearnLegacy(const LegacyCall& call, Problem* problem);

// Takes the results that need more memory than the limit out of what a legacy function gave, and
// cuts it to `most`. Where no good one is left, it is cut only. Returns how many there are.
int LimitLegacy(int64_t limit, int count, int most, LegacyResult* results);

}  // namespace convtune::preload
