// A Program is what a plan or a call of the legacy API computes: a convolution and what follows it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/simgpu/cudnn/convolution.h"

namespace convtune::simgpu {

// Tensors that the caller provides, by cuDNN's unique id.
struct Operand {
  int64_t uid = 0;
  Tensor tensor;
  int64_t alignment = 1;  // of its address, in bytes
};

// Adds a tensor, whose sizes are those of the value or 1, or cuts to zero what is below it.
struct Pointwise {
  bool relu = false;
  Operand other;                     // of an addition
  DataType result = DataType::kF32;  // that the value is rounded to
};

// Value type.
struct Program {
  Convolution convolution;
  Operand x, w, y;  // those of the convolution, by its names
  std::vector<Pointwise> epilogue;
  Operand output;

  // Reads a plan's CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION. INVALID_ARGUMENT names what is
  // missing there; UNIMPLEMENTED what cannot be computed.
  static absl::StatusOr<Program> Read(std::string_view plan_json);

  // Gives the convolution its tensors, and the program its output, where nothing follows.
  void FinishConvolution();
  std::vector<Operand> Inputs() const;
  // Equal where the programs are.
  std::string Text() const;
  // The output's bytes. `data` has the memory of each input by its id.
  std::vector<char> Compute(const std::map<int64_t, const void*>& data) const;
};

}  // namespace convtune::simgpu
