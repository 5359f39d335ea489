// A report as a document for programs; README.md describes it.
#pragma once

#include <string>

#include "client/report/report.h"

namespace convtune::report {

// One line. In strings "<" is written as an escape, so that the document may
// stand in a page.
std::string ReportJson(const ReportData& data, const Report& report);

}  // namespace convtune::report
