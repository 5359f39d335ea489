// What an inference server does with libconvtune when it starts: asks for its
// whole model in one call, and builds a cuDNN plan from each answer.
//   convtune-example-server [PROFILE.json] < problems in the text form
// PROFILE.json: a device profile (see deploy/profiles), to do it without a GPU.
// Prints for each problem the engine, the plan's workspace and, where there is a
// GPU, "ran" once it has run there on tensors of zeros; or why there is none,
// where a server would take cuDNN's own heuristic. Ends with 1 if an answer
// could not be made a plan, or the plan did not run.
#include <convtune/resolver.h>
#include <cudnn.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <fstream>
#include <future>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "cudnn_plan.h"

namespace {

// As for a first request: its own tensors, one run, and its result awaited.
void Run(const example::Device& device, const example::Plan& plan) {
  std::vector<example::DeviceBuffer> buffers;
  std::vector<void*> tensors;
  for (const std::int64_t bytes : plan.tensor_bytes) {
    tensors.push_back(buffers.emplace_back(bytes).data());
  }
  const example::DeviceBuffer workspace(plan.workspace_bytes);
  example::Execute(device, plan, tensors, workspace.data());
  example::Synchronize();
}

}  // namespace

int main(int argc, char** argv) {
  using convtune::client::Query;
  std::vector<Query> model;
  for (std::string line; std::getline(std::cin, line);) {
    if (!line.empty()) model.push_back({line});
  }
  convtune::client::Constraints constraints;
  constraints.api = convtune::client::Api::kGraph;
  convtune::client::Resolver resolver;
  // cuDNN loads its libraries meanwhile, which takes longer than the answers do.
  auto asked = std::async(std::launch::async, [&] {
    return resolver.Resolve(model, std::chrono::seconds(5), constraints);
  });
  int failed = 0;
  try {
    example::Device device;
    if (argc > 1) {
      std::ifstream file(argv[1]);
      if (!file) throw std::runtime_error(std::string(argv[1]) + ": cannot be read");
      device = example::DeviceFromProfile({std::istreambuf_iterator<char>(file), {}});
    } else if (cudnnCreate(&device.handle) != CUDNN_STATUS_SUCCESS) {
      std::cerr << "there is no GPU; name the file of a device profile\n";
      return 2;
    }
    for (const auto& result : asked.get()) {
      std::cout << result.problem << "\t";
      if (!result.found) {
        std::cout << "cuDNN's heuristic: " << result.message << "\n";
        continue;
      }
      try {
        example::RequireOwn(device, result.environment);
        const example::Convolution problem = example::Parse(result.problem);
        const example::Plan plan = example::MakePlan(device, problem, result.winner);
        std::cout << result.winner.text << "\t" << plan.workspace_bytes;
        if (device.handle != nullptr) {
          Run(device, plan);
          std::cout << "\tran";
        }
        std::cout << "\n";
      } catch (const std::exception& error) {
        std::cout << "error: " << error.what() << "\n";
        ++failed;
      }
    }
    if (device.handle != nullptr) cudnnDestroy(device.handle);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
  return failed == 0 ? 0 : 1;
}
