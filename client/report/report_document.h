// A report as a document for programs, which README.md describes, and as a page.
#pragma once

#include <string>

#include "client/report/report.h"

namespace convtune::report {

// One line. In strings "<" is written as an escape, so that the document may
// stand in a page.
std::string ReportJson(const ReportData& data, const Report& report);
// HTML with its style, its program and its data (ReportJson) inline: it loads
// nothing, from nowhere.
std::string ReportHtml(const ReportData& data, const Report& report);

}  // namespace convtune::report
