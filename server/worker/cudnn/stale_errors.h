// Functions that keep an old CUDA error from being taken for a new one. cuDNN has
// a CUDA runtime of its own. A failure there, such as a failed capture of one
// candidate, may be reported by the next launch, perhaps another candidate's.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace convtune::worker::cudnn {

// Calls `run`. Where it fails, it is called once more at once, behind `clear` (see Recover),
// and counted in `retried`. The second result is the run's: each run has one retry of its own,
// however many runs of its candidate failed before.
template <typename T>
absl::StatusOr<T> TryTwice(const std::function<absl::StatusOr<T>()>& run,
                           const std::function<void()>& clear, int* retried) {
  absl::StatusOr<T> result = run();
  if (result.ok()) return result;
  clear();
  ++*retried;
  return run();
}

// Returns `result`; where it failed, `launch` is called once behind it, and takes the error
// that is left, if one is. It had better be a launch that works.
template <typename T>
absl::StatusOr<T> OrThrowAway(absl::StatusOr<T> result, const std::function<absl::Status()>& launch,
                              const std::function<void()>& clear) {
  if (result.ok()) return result;
  clear();
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
