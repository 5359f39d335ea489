// Adds the rows of bundles to a report.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/report/report_data.h"

namespace convtune::report {

// Reads all of the bundle and adds what it has. Returns how many rows were left
// out because they break a rule. Errors are BundleReader's and name the file.
// `progress` (may be empty) is told the bytes read so far, and the file's size.
absl::StatusOr<int64_t> AddBundle(const std::string& path, absl::Time now, ReportData* data,
                                  const std::function<void(int64_t, int64_t)>& progress);

}  // namespace convtune::report
