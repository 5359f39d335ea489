// Adds the rows of the fleet's database to a report.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "client/report/report_data.h"
#include "db/postgres/connection.h"

namespace convtune::fleet {

// Adds the current measurements of all nodes, their counters and their misses, as of one
// moment. Leaves out evidence that is not pooled yet. Calls `progress` (may be empty)
// with the number of rows that are read and the number of all rows.
absl::Status AddFleet(db::postgres::Connection& postgres, report::ReportData* data,
                      const std::function<void(int64_t, int64_t)>& progress);

}  // namespace convtune::fleet
