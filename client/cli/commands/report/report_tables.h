// A report for a terminal, and its rows as CSV.
#pragma once

#include <ostream>
#include <string>

#include "client/cli/output/fields.h"
#include "client/report/report.h"

namespace convtune::cli::commands::report {

// The headline, and a table for each section that has anything, of `top` rows at
// most. `width` and `color` as in Table::Render.
std::string ReportTables(const convtune::report::ReportData& data,
                         const convtune::report::Report& report, size_t top, int width, bool color);

// The columns of a row.
output::Fields ReportColumns();
// Writes a line of titles, and a line for each row. Of a fleet they are gigabytes.
void WriteReportCsv(const convtune::report::ReportData& data, std::ostream& out);

}  // namespace convtune::cli::commands::report
