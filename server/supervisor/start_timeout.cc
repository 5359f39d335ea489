#include "server/supervisor/start_timeout.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"

namespace convtune::supervisor {

uint64_t WorkDone(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  std::getline(file, line);
  // The name, in parentheses, may hold anything.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(line.substr(name_end + 1));
  std::string skipped;
  // proc(5): state is field 3; minflt, cminflt, majflt, cmajflt, utime, stime
  // are fields 10 to 15.
  for (int field = 3; field < 10; ++field) fields >> skipped;
  uint64_t work = 0;
  uint64_t number = 0;
  for (int field = 10; field <= 15 && fields >> number; ++field) work += number;
  return work;
}

void StartTimeout::Saw(uint64_t work_done, SteadyTime now) {
  if (work_done == work_done_) return;
  work_done_ = work_done;
  last_sign_ = now;
}

SteadyTime StartTimeout::end() const {
  return std::min(last_sign_ + limits_.silence, start_ + limits_.longest);
}

std::string StartTimeout::reason() const {
  return last_sign_ + limits_.silence <= start_ + limits_.longest
             ? absl::StrCat("it gave no sign of life for ", absl::FormatDuration(limits_.silence))
             : absl::StrCat("it did not start within ", absl::FormatDuration(limits_.longest));
}

}  // namespace convtune::supervisor
