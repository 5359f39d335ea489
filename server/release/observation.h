// ReadReport reads what a program reports. Pure functions of bytes from outside:
// anything may have sent them.
#pragma once

#include <cstddef>
#include <optional>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/model/tuning/tuning.h"

namespace convtune::release {

struct ReportedMiss {
  TuningKey key;
  int64_t count = 0;
  // False where the problem is known, but what is known did not suit the
  // program: another tuning would not help.
  bool wants_tuning = false;
};

// Of evidence OBSERVED: the plan that a program settled on, or the results of
// its legacy search, ranked by the times that it gave.
struct ReportedTuning {
  Tuning tuning;
  Environment environment;  // with the model's short form
};

using Report = std::variant<ReportedMiss, ReportedTuning>;

// INVALID_ARGUMENT if it is no sound datagram (db/snapshot/datagram.h).
absl::StatusOr<Report> ReadReport(const void* data, size_t size, absl::Time now);

// True if `made`, of evidence OBSERVED, says something that `stored` does not.
// Takes over the candidates of an API that only `stored` has, where that is
// OBSERVED too: a program may use both.
bool AddsToObserved(const Tuning& stored, Tuning* made);

}  // namespace convtune::release
