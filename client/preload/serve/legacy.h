// The legacy API: cudnnFind*, cudnnFind*Ex and cudnnGet*_v7.
#pragma once

#include <cudnn.h>
#include <stddef.h>

#include "db/snapshot/problem_key.h"

namespace convtune::preload::report {
struct Problem;
}  // namespace convtune::preload::report

namespace convtune::preload::serve {

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

// Key of the call's problem, and the math type that its descriptor allows.
// False if the descriptors say something that the key cannot, or cannot be
// read.
bool MakeLegacyKey(const LegacyCall& call, snapshot::ProblemKey* key, cudnnMathType_t* math);

// Workspace of an algorithm under the descriptor's own settings; false if cuDNN
// refuses it.
bool LegacyWorkspace(const LegacyCall& call, int algorithm, size_t* bytes);

// cuDNN's own list without a search (Get_v7). Number of results, 0 on an error.
int LegacyHeuristics(const LegacyCall& call, int requested, LegacyResult* results);

// Numerical notes that follow from what cuDNN says of an algorithm: those that
// the daemon keeps (proto/model/tuning/note_rules.h).
uint32_t LegacyNotes(int operation, uint8_t data_type, int64_t filter_extent,
                     const LegacyResult& result);

// True if results of math type `candidate` may be given where the descriptor
// has `allowed`: the same or a stricter one, from FMA over DEFAULT and
// TENSOR_OP to ALLOW_CONVERSION.
bool IsMathAllowed(int candidate, cudnnMathType_t allowed);

// Before the real call: gives the stored winners where there are any. False
// where the real function is to be called; `problem` is then what Learn needs,
// null if the call is nothing that could be learned from.
bool ServeLegacy(const LegacyCall& call, report::Problem** problem);

// After the real call succeeded.
void LearnLegacy(const LegacyCall& call, report::Problem* problem);

}  // namespace convtune::preload::serve
