// Functions that keep an old CUDA error from being taken for a new one. cuDNN has
// a CUDA runtime of its own. A failure there, such as a failed capture of one
// candidate, may be reported by the next launch, perhaps another candidate's.
#pragma once

#include <functional>

#include "absl/status/status.h"

namespace convtune::worker::cudnn {

// Calls `run`. Where it fails, it is called once more at once, behind `clear` (see Recover),
// and counted in `retried`. The second result is the run's: each run has one retry of its own,
// however many runs of its candidate failed before.
template <typename Run>
auto TryTwice(const Run& run, const std::function<void()>& clear, int* retried) {
  auto result = run();
  if (result.ok()) return result;
  clear();
  ++*retried;
  return run();
}

// Returns `result`, a Status or a StatusOr; where it failed, `launch` is called once behind it,
// and takes the error that is left, if one is. It had better be a launch that works.
template <typename Result>
Result OrThrowAway(Result result, const std::function<absl::Status()>& launch,
                   const std::function<void()>& clear) {
  if (result.ok()) return result;
  clear();
  launch().IgnoreError();
  clear();
  return result;
}

}  // namespace convtune::worker::cudnn
