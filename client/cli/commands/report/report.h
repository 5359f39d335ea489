// ReportOutput has the options of a report and writes it, for a terminal, as CSV, JSON or a page:
// the same for a node and a fleet.
#pragma once

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/app/context.h"
#include "client/cli/output/fields.h"
#include "client/cli/output/io.h"
#include "client/report/report.h"

namespace CLI {
class App;
}

namespace convtune::cli::commands::report {

// Value type, but its address is registered.
class ReportOutput {
 public:
  // Adds --html, --gpu, --op and so on. *this must outlive `app`.
  void Register(CLI::App& app);
  // Returns the filter that the options ask for.
  convtune::report::ReportFilter Filter() const;
  // INVALID_ARGUMENT names the option.
  absl::StatusOr<convtune::report::ReportOptions> Options() const;
  // Makes the report and writes it: the page where one was asked for, data on
  // io.out, words on io.err.
  absl::Status Write(convtune::report::ReportData data,
                     const convtune::report::ReportOptions& options, app::Format format,
                     output::Io& io) const;

 private:
  std::string html_;
  std::string gpu_, problem_;
  std::string operation_, data_type_, layout_;
  std::string stale_after_ = "4320h";
  size_t top_ = 10;
};

// Writes a line of titles, and a line for each row. Of a fleet they are gigabytes.
void WriteReportCsv(const convtune::report::ReportData& data, std::ostream& out);

}  // namespace convtune::cli::commands::report
