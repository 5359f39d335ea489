// Finalises plans from engine and knobs alone, with no daemon and no database.
//   convtune-finalise-plans PROFILE.json < lines of "problem<TAB>candidate"
// Prints for each line "ok<TAB>workspace bytes" or "error<TAB>why".
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/base/status_macros.h"
#include "proto/model/problem/conv_problem.h"
#include "proto/model/tuning/candidate.h"
#include "server/worker/backend.h"
#include "server/worker/device/device_profile.h"

namespace convtune {
namespace {

absl::StatusOr<int64_t> Finalise(worker::Backend& backend, const std::string& line) {
  const size_t tab = line.find('\t');
  if (tab == std::string::npos) {
    return absl::InvalidArgumentError("line: must be problem, tab, candidate");
  }
  ASSIGN_OR_RETURN(const ConvProblem problem, ConvProblem::Parse(line.substr(0, tab)));
  ASSIGN_OR_RETURN(const CandidateId id, ParseCandidateId(line.substr(tab + 1)));
  ASSIGN_OR_RETURN(const std::unique_ptr<worker::BackendProblem> opened, backend.Open(problem, 0));
  ASSIGN_OR_RETURN(const worker::v1::Prepared prepared, opened->Prepare(id));
  return prepared.workspace_bytes();
}

int Run(const std::string& profile_path) {
  const absl::StatusOr<worker::device::DeviceProfile> profile =
      worker::device::DeviceProfile::Load(profile_path);
  if (!profile.ok()) {
    std::cerr << profile.status() << "\n";
    return 1;
  }
  absl::StatusOr<std::unique_ptr<worker::Backend>> backend =
      worker::MakeDevicelessBackend(*profile);
  if (!backend.ok()) {
    std::cerr << backend.status() << "\n";
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    const absl::StatusOr<int64_t> workspace = Finalise(**backend, line);
    if (workspace.ok()) {
      std::cout << "ok\t" << *workspace << "\n";
    } else {
      std::cout << "error\t" << workspace.status().message() << "\n";
    }
  }
  return 0;
}

}  // namespace
}  // namespace convtune

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: convtune-finalise-plans PROFILE.json\n";
    return 2;
  }
  return convtune::Run(argv[1]);
}
