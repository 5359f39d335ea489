// A report as a document for programs, which README.md describes, as a page, and its
// rows as CSV.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "client/report/report.h"

namespace convtune::report {

// One line. In strings "<" is written as an escape, so that the document may
// stand in a page.
std::string ReportJson(const ReportData& data, const Report& report);
// HTML with its style, its program and its data (ReportJson) inline: it loads
// nothing, from nowhere.
std::string ReportHtml(const ReportData& data, const Report& report);
// CSV, a line a row, with a line of titles, given to `write` in parts: a fleet's
// rows are gigabytes. Lines end with "\n"; fields are quoted by RFC 4180.
void WriteReportCsv(const ReportData& data, const std::function<void(std::string_view)>& write);

}  // namespace convtune::report
