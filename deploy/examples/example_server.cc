// What an inference server does with libconvtune when it starts: asks for its
// whole model in one call, and builds a cuDNN plan from each answer.
//   convtune-example-server [PROPERTIES.json] < problems in the text form
// PROPERTIES.json: the "properties" of a device profile, to do it without a GPU.
// Prints for each problem the engine, the plan's workspace and, where there is a
// GPU, "ran" once it has run there on tensors of zeros; or why there is none,
// where a server would take cuDNN's own heuristic. Ends with 1 if an answer
// could not be made a plan, or the plan did not run.
#include <convtune/resolver.h>
#include <cudnn.h>

#include <chrono>
#include <exception>
#include <fstream>
#include <future>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "cudnn_plan.h"

namespace {

// As for a first request: its own tensors, one run, and its result awaited.
void Run(const example::Device& device, const example::Convolution& problem,
         const example::Plan& plan) {
  const example::DeviceBuffer x(problem.x.bytes());
  const example::DeviceBuffer w(problem.w.bytes());
  const example::DeviceBuffer y(problem.y.bytes());
  const example::DeviceBuffer workspace(plan.workspace_bytes);
  example::Execute(device, plan, x.data(), w.data(), y.data(), workspace.data());
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
      device = example::DeviceFromProfile({std::istreambuf_iterator<char>(file), {}});
    } else if (cudnnCreate(&device.handle) != CUDNN_STATUS_SUCCESS) {
      std::cerr << "there is no GPU; name the properties of a device profile\n";
      return 2;
    }
    for (const auto& result : asked.get()) {
      std::cout << result.problem << "\t";
      if (!result.found) {
        std::cout << "cuDNN's heuristic: " << result.why << "\n";
        continue;
      }
      try {
        const example::Convolution problem = example::Parse(result.problem);
        const example::Plan plan = example::MakePlan(device, problem, result.winner);
        std::cout << result.winner.text << "\t" << plan.workspace_bytes;
        if (device.handle != nullptr) {
          Run(device, problem, plan);
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
