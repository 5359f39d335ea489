// ReportOutput has the options of a report and writes it, for a terminal, as CSV, JSON or a page:
// the same for a node and a fleet.
#pragma once

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "client/cli/app/context.h"
#include "client/cli/output/fields.h"
#include "client/report/report.h"

namespace CLI {
class App;
}

namespace convtune::cli::commands {

// Value type, but its address is registered.
class ReportOutput {
 public:
  // Adds --html, --gpu, --op and so on. *this must outlive `app`.
  void Register(CLI::App& app);
  // The columns of CSV.
  static output::Fields Columns();
  // The filter that the options ask for.
  const report::ReportFilter& Filter() const { return filter_; }
  // Makes the report and writes it: the page where one was asked for, data on
  // io.out, words on io.err.
  absl::Status Write(report::ReportData data, app::Context& context) const;

 private:
  std::string html_;
  report::ReportFilter filter_;
  report::ReportOptions options_;
  size_t top_ = 10;
};

// Writes the rows of the report as CSV, each as soon as it is made: those of a fleet are gigabytes.
void WriteReportCsv(const report::ReportData& data, std::ostream& out);

}  // namespace convtune::cli::commands
