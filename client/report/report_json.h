// A report as a document for programs; README.md describes it.
#pragma once

#include <string>

#include "client/report/report.h"

namespace convtune {

// One line. In strings "<" is written as an escape, so that the document may
// stand in a page.
std::string ReportJson(const ReportData& data, const Report& report);

// CSV, a line a row, with a line of titles: the rows that the report is made of.
// Lines end with "\n"; fields are quoted by RFC 4180.
std::string ReportCsv(const ReportData& data);

}  // namespace convtune
