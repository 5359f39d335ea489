// ReportPageHead and ReportPageTail are the page around a report's data, made of the
// files in page/.
#pragma once

#include <string_view>

namespace convtune::report {

// The parts of the page before and behind the document.
std::string_view ReportPageHead();
std::string_view ReportPageTail();

}  // namespace convtune::report
