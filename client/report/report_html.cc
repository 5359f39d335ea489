#include "client/report/report_html.h"

#include "client/report/page.h"
#include "client/report/report_json.h"

namespace convtune::report {

std::string ReportHtml(const ReportData& data, const Report& report) {
  std::string page(ReportPageHead());
  page += ReportJson(data, report);
  page += ReportPageTail();
  return page;
}

}  // namespace convtune::report
