// convtune-make-fleet FOLDER NODES PROBLEMS PER_NODE [untimed]: bundles of a
// simulated fleet, FOLDER/node-NNNN.bundle.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "db/bundle/bundle_writer.h"
#include "tests/unit/report/simulated_fleet.h"

namespace {

absl::Status WriteNode(const convtune::report::SimulatedFleet& fleet, int node,
                       const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return absl::UnavailableError(path + " cannot be written");
  convtune::db::bundle::BundleWriter writer([file](std::string_view bytes) {
    return std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size()
               ? absl::OkStatus()
               : absl::UnavailableError("the file cannot be written");
  });
  absl::Status status;
  for (const auto& [tuning, environment] : fleet.TuningsOf(node)) {
    status.Update(writer.Add(tuning, environment));
  }
  status.Update(writer.Finish());
  if (std::fclose(file) != 0) status.Update(absl::UnavailableError("the file cannot be closed"));
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: convtune-make-fleet FOLDER NODES PROBLEMS PER_NODE [untimed]\n");
    return 2;
  }
  convtune::report::FleetOptions options;
  options.nodes = std::atoi(argv[2]);
  options.problems = std::atoi(argv[3]);
  options.problems_per_node = std::atoi(argv[4]);
  options.timed = argc == 5;
  const convtune::report::SimulatedFleet fleet(options);
  for (int node = 0; node < fleet.nodes(); ++node) {
    const std::string path =
        std::string(argv[1]) + "/" + convtune::report::SimulatedFleet::NodeName(node) + ".bundle";
    const absl::Status status = WriteNode(fleet, node, path);
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      return 1;
    }
  }
  return 0;
}
