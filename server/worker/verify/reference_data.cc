#include "server/worker/verify/reference_data.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <thread>

#include "proto/model/problem/conv_problem.h"
#include "server/worker/verify/tensor_data.h"

namespace convtune::worker::verify {
namespace {

constexpr uint64_t kInputSeed = 20240229;
constexpr uint64_t kElementSeed = 20250307;
// An odd number, so that rows of a tensor do not repeat each other.
constexpr int64_t kBlockElements = (int64_t{1} << 20) + 7;
constexpr int64_t kMaxProducts = int64_t{1} << 25;

// Activations come from behind a ReLU, and gradients through one; w and the
// bias do not.
TensorContent ContentOf(cudnn::TensorRole role) {
  using enum cudnn::TensorRole;
  if (role == kX || role == kResidual) return TensorContent::kRectified;
  return role == kY ? TensorContent::kMasked : TensorContent::kNormal;
}

// A sum of products is to stay within the type of the output: with a standard
// deviation of a fifth of its range few elements of an i8 output saturate, with
// what an epilogue adds, and few are 0. Wider outputs take any sum.
double IntegerScale(const ConvProblem& problem, cudnn::TensorRole role) {
  if (problem.output_type() != DataType::kI8) return kWideIntegers;
  const double deviation = LargestOf(DataType::kI8) / 5;
  if (role == cudnn::TensorRole::kResidual || role == cudnn::TensorRole::kBias) return deviation;
  // Half of x is 0 (ContentOf), so that its mean square is half of that of w.
  const auto products = static_cast<double>(std::max<int64_t>(1, ProductsPerElement(problem)));
  return IntegerScaleOf(deviation * std::sqrt(2 / products));
}

// A thread of its own; where the system gives none, whoever waits for the work does it.
constexpr auto kIfPossible = std::launch::async | std::launch::deferred;

// Calls work(i) for each i below `count`, several at a time.
void SpreadOver(int threads, size_t count, const std::function<void(size_t i)>& work) {
  std::atomic<size_t> next = 0;
  const auto run = [&] {
    for (size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::future<void>> others;
  for (size_t i = 1; i < std::min(static_cast<size_t>(threads), count); ++i) {
    others.push_back(std::async(kIfPossible, run));
  }
  run();
  for (std::future<void>& other : others) other.get();
}

}  // namespace

int ReferenceData::ThreadCount() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 8);
}

ReferenceData::ReferenceData(const ConvProblem& problem,
                             const std::vector<cudnn::GraphTensor>& tensors, int threads,
                             InputValues inputs)
    : problem_(problem), threads_(threads), input_values_(inputs) {
  for (const cudnn::GraphTensor& tensor : tensors) {
    if (tensor.output) continue;
    inputs_.push_back({tensor, ""});
    values_[tensor.role];  // so that threads only find it
  }
  inputs_made_ = std::async(kIfPossible, [this] {
    SpreadOver(threads_, inputs_.size(), [this](size_t i) { MakeInput(&inputs_[i]); });
  });
  // Who needs a result gets what making it has thrown: without it nothing would be checked.
  all_made_ = std::async(kIfPossible, [this] {
    inputs_made_.get();
    MakeReference();
  });
}

ReferenceData::~ReferenceData() {
  stop_ = true;
  all_made_.wait();
}

const std::string& ReferenceData::Block(int64_t uid) {
  inputs_made_.get();
  return std::find_if(inputs_.begin(), inputs_.end(),
                      [uid](const Input& input) { return input.tensor.uid == uid; })
      ->block;
}

const std::vector<ReferenceElement>& ReferenceData::Reference() {
  all_made_.get();
  return reference_;
}

void ReferenceData::MakeReference() {
  const auto elements = ChooseElements(problem_, kMaxProducts, kElementSeed);
  reference_.resize(elements.size());
  SpreadOver(threads_, elements.size(), [&](size_t i) {
    if (!stop_) reference_[i] = ComputeElement(problem_, values_, elements[i]);
  });
  values_.clear();
}

void ReferenceData::MakeInput(Input* input) {
  if (stop_) return;
  const cudnn::GraphTensor& tensor = input->tensor;
  input->block = RandomTensorBytes(
      tensor.type, std::min(tensor.elements, kBlockElements),
      input_values_ == InputValues::kSmallIntegers ? TensorContent::kSmallIntegers
                                                   : ContentOf(tensor.role),
      kInputSeed + static_cast<uint64_t>(tensor.uid), IntegerScale(problem_, tensor.role));
  values_.at(tensor.role) = DecodeElements(tensor.type, input->block);
}

}  // namespace convtune::worker::verify
