#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "proto/model/enums.h"

namespace convtune::release {

// PublishOptions say what unmodified programs are served, and how.
struct PublishOptions {
  std::string folder;                    // of the snapshot and the socket; made if need be
  Evidence floor = Evidence::kObserved;  // less is not served
  bool auto_promote = false;             // a changed choice does not wait
  bool tune_wanted = false;              // tune what programs miss while nobody waits
  absl::Duration wanted_budget = absl::Seconds(10);  // for one of them
  int64_t wanted_memory_budget_bytes = 0;            // 0: what the device has free
  // For a GPU that nobody else uses, before each; what is queued meanwhile waits too.
  absl::Duration wanted_wait_idle = absl::ZeroDuration();
  bool open_to_all = false;  // everybody who reaches the folder may report, not the group alone
  // From a change to the snapshot that has it; changes in between go with it.
  absl::Duration debounce = absl::Milliseconds(500);
};

}  // namespace convtune::release
