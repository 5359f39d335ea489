// ReportTables writes a report for a terminal.
#pragma once

#include <string>

#include "client/report/report.h"

namespace convtune::cli::commands::report {

// The headline, and a table for each section that has anything, of `top` rows at
// most. `width` and `color` as in Table::Render.
std::string ReportTables(const convtune::report::ReportData& data,
                         const convtune::report::Report& report, size_t top, int width, bool color);

}  // namespace convtune::cli::commands::report
