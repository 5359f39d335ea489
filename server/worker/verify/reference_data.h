// A ReferenceData makes the inputs of a problem and its expected output.
#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <string>
#include <vector>

#include "proto/model/problem/conv_problem.h"
#include "server/worker/cudnn/graph_builder.h"
#include "server/worker/verify/reference.h"

namespace convtune::worker::verify {

// Contents of a problem's inputs: values as those of networks, or small integers,
// of which every sum of a small convolution is exact in all types.
enum class InputValues { kAsInNetworks, kSmallIntegers };

// The values of a problem's inputs, and what its output should be for some of
// its elements: up to about a second of a core (server/worker/README.md), so threads of its
// own do it while plans are built. What comes out depends on the problem alone.
// Not thread-safe.
class ReferenceData {
 public:
  // One thread for each core, up to 8.
  static int ThreadCount();
  // Starts on `threads` threads; those of `tensors` that are outputs are left
  // out.
  ReferenceData(const ConvProblem& problem, const std::vector<cudnn::GraphTensor>& tensors,
                int threads, InputValues inputs = InputValues::kAsInNetworks);
  // Leaves undone what is not begun yet, and waits for what is.
  ~ReferenceData();
  ReferenceData(const ReferenceData&) = delete;
  ReferenceData& operator=(const ReferenceData&) = delete;

  // Returns the values of the input `uid`, in its type. The memory of a longer tensor
  // repeats them. Waits for them. REQUIRES: there is such an input.
  const std::string& Block(int64_t uid);
  // Returns what elements of the output should be. Waits for it.
  const std::vector<ReferenceElement>& Reference();

 private:
  struct Input {
    cudnn::GraphTensor tensor;
    std::string block;
  };

  void MakeReference();
  void MakeInput(Input* input);

  const ConvProblem problem_;
  const int threads_;
  const InputValues input_values_;
  std::vector<Input> inputs_;
  ReferenceInputs values_;
  std::vector<ReferenceElement> reference_;
  std::atomic<bool> stop_ = false;
  std::shared_future<void> inputs_made_;
  std::shared_future<void> all_made_;
};

}  // namespace convtune::worker::verify
