// PreloadCounters are the sums that the interposer counted in the processes of a
// run.
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <set>
#include <string>

namespace convtune::cli::commands::run {

// Sums over processes. Value type.
struct PreloadCounters {
  int64_t processes = 0;  // that called cuDNN and came to their end
  int64_t served = 0;     // queries of either API that got stored choices
  int64_t observed = 0;   // known, and left alone by the policy
  int64_t passed = 0;     // of forms that are never served
  int64_t learned = 0;
  int64_t dropped = 0;     // reports that nobody took
  int64_t over_limit = 0;  // queries of which nothing keeps to the workspace's limit
  int64_t bypassed = 0;    // processes that loaded cuDNN and called none of it through convtune
  std::map<std::string, int64_t> missed;  // by reason
  std::set<std::string> no_snapshot;      // why processes had none

  int64_t missed_count() const;
};

// Reads one JSON object a line, as client/preload writes them. Lines that are
// not an object, unknown members and values that are not a number are left out.
PreloadCounters ReadPreloadCounters(std::istream& in);

// For people, one line. `snapshot` is the file that the processes looked for; `audited`: LD_AUDIT
// was set.
std::string Describe(const PreloadCounters& counters, const std::string& snapshot, bool audited);

}  // namespace convtune::cli::commands::run
