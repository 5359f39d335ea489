// Adds the rows of the fleet's database to a report.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "client/report/report_data.h"
#include "db/postgres/connection.h"

namespace convtune::fleet {

// Adds what all nodes measured, as of one moment, and what they count and miss.
// What is not pooled yet is not in it. `progress` (may be empty) is told how many
// rows of how many were read.
absl::Status AddFleet(db::postgres::Connection& postgres, const report::ReportFilter& filter,
                      report::ReportData* data,
                      const std::function<void(int64_t, int64_t)>& progress);

}  // namespace convtune::fleet
