// Finds the GPUs of a daemon that was started before they were there: before
// the driver's module, or while they were being partitioned.
#pragma once

#include "absl/time/time.h"
#include "server/convtuned/flags.h"
#include "server/convtuned/probe.h"
#include "server/convtuned/signals.h"

namespace convtune::convtuned {

// Not thread-safe.
class DeviceSearch {
 public:
  // `found` is what there was at the start: with a GPU, or without one wanted,
  // there is nothing to look for. `flags` and `signals` outlive it.
  DeviceSearch(const Flags& flags, const ProbeResult& found, StopSignals* signals);

  // When Look() is to be called next.
  absl::Time next() const { return wanted_ ? next_ : absl::InfiniteFuture(); }

  // True if there is a GPU now. Before next() it does nothing; then it runs
  // the worker, as long as ProbeOptions' limits allow, if there is a driver or a
  // GPU was asked for by its number.
  bool Look();

 private:
  const Flags& flags_;
  StopSignals* const signals_;
  const bool wanted_;
  absl::Time next_;
};

}  // namespace convtune::convtuned
