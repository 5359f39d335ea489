// Writes a report's rows as CSV, for spreadsheets and databases.
#pragma once

#include <functional>
#include <string_view>

#include "client/report/report_data.h"

namespace convtune::report {

// CSV, a line a row, with a line of titles, given to `write` in parts: a fleet's
// rows are gigabytes. Lines end with "\n"; fields are quoted by RFC 4180.
void WriteReportCsv(const ReportData& data, const std::function<void(std::string_view)>& write);

}  // namespace convtune::report
