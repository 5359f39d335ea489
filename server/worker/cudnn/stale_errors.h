// Functions that keep an old CUDA error from being taken for a new one. cuDNN has
// a CUDA runtime of its own. A failure there, such as a failed capture of one
// candidate, may be reported by the next launch, perhaps another candidate's.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace convtune::worker::cudnn {

// Calls `attempt`, once more if it fails, and returns the last result. `clear`
// follows each failure: see AbortIfContextIsLost.
template <typename T>
absl::StatusOr<T> TryTwice(const std::function<absl::StatusOr<T>()>& attempt,
                           const std::function<void()>& clear) {
  absl::StatusOr<T> result = attempt();
  if (result.ok()) return result;
  clear();
  result = attempt();
  if (!result.ok()) clear();
  return result;
}

// Returns `result`; where it failed, `launch` is called once behind it, and takes the error
// that is left, if one is. It had better be a launch that works.
template <typename T>
absl::StatusOr<T> OrThrowAway(absl::StatusOr<T> result, const std::function<absl::Status()>& launch,
                              const std::function<void()>& clear) {
  if (result.ok()) return result;
  launch().IgnoreError();
  clear();
  return result;
}

// Calls `capture`; where it fails, `launch` is called once behind it, and
// takes the error that is left, if one is.
inline absl::Status CaptureOrThrowAway(const std::function<absl::Status()>& capture,
                                       const std::function<absl::Status()>& launch,
                                       const std::function<void()>& clear) {
  absl::Status captured = capture();
  if (captured.ok()) return captured;
  clear();
  launch().IgnoreError();
  clear();
  return captured;
}

}  // namespace convtune::worker::cudnn
