// A report as one page that needs nothing else.
#pragma once

#include <string>

#include "client/report/report.h"

namespace convtune::report {

// HTML with its style, its program and its data (ReportJson) inline: it loads
// nothing, from nowhere.
std::string ReportHtml(const ReportData& data, const Report& report);

}  // namespace convtune::report
