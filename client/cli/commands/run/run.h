// Runs another program and waits for it, for `convtune run`: finds the interposer's library, and
// sums what it counted in the processes of the run.
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/app/program.h"
#include "proto/base/child_program.h"

namespace convtune::cli::commands::run {

app::NewVerb NewRunCommand;

inline constexpr char kPreloadLibrary[] = "libconvtune_preload.so";

// The real path of the library, as it is built or installed with this
// program. FAILED_PRECONDITION: it is in none of the places.
absl::StatusOr<std::string> FindPreloadLibrary();

// A process that loaded cuDNN and came to its end.
struct PreloadProcess {
  int64_t pid = 0;
  std::string name;     // as the kernel has it
  std::string reached;  // "linked", "dlsym"; empty: it never called a function that is hooked
  int64_t served = 0;
  int64_t missed = 0;
};

// Value type.
struct PreloadCounters {
  std::vector<PreloadProcess> each;
  int64_t processes = 0;  // that asked cuDNN through convtune
  int64_t bypassed = 0;   // that loaded cuDNN and never asked it through convtune
  // The sums of their counters, by the names in client/preload/README.md ("over_limit"), with
  // "missed" for all reasons together.
  std::map<std::string, int64_t> sums;
  std::map<std::string, int64_t> missed;  // by reason
  std::set<std::string> no_snapshot;      // why processes had none

  int64_t Sum(const std::string& name) const { return sums.contains(name) ? sums.at(name) : 0; }
};

// Reads one JSON object a line, as client/preload writes them. Lines that are
// not an object, unknown members and values that are not a number are left out.
PreloadCounters ReadPreloadCounters(std::istream& in);

// For people: a line of the sums, and one for each process where there are several. `snapshot` is
// the file that the processes looked for.
std::vector<std::string> Describe(const PreloadCounters& counters, const std::string& snapshot);

// Runs `command` (its first word is looked up in PATH) with these variables
// added to the environment, and returns how it ended, as waitpid says it. Signals that this process
// gets meanwhile are passed on to the program, but for those of the terminal, which it gets itself.
// Where the program cannot be run, the error has the errno's code: NOT_FOUND, it is not there. To
// be called while the process has one thread.
absl::StatusOr<int> RunProgramAndWait(const std::vector<std::string>& command,
                                      const Variables& variables);

}  // namespace convtune::cli::commands::run
