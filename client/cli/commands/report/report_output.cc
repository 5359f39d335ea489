#include "client/cli/commands/report/report_output.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/cli/app/command.h"
#include "client/cli/commands/report/report_tables.h"
#include "client/cli/output/atomic_file.h"
#include "client/cli/output/units.h"
#include "client/report/report_document.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/convert/problem_list.h"

namespace convtune::cli::commands::report {

void ReportOutput::Register(CLI::App& app) {
  app.add_option("--html", html_, "write one page that needs nothing else")->type_name("FILE");
  app.add_option("--gpu", gpu_, "only GPU models whose name contains this")->type_name("TEXT");
  app.add_option("--filter", problem_, "only problems whose text form contains this")
      ->type_name("TEXT");
  app.add_option("--op", operation_, "only this operation")->check(CLI::IsMember(OperationNames()));
  app.add_option("--dtype", data_type_, "only this type of the inputs")
      ->check(CLI::IsMember(InputTypeNames()));
  app.add_option("--layout", layout_, "only this layout")
      ->check(CLI::IsMember({"nchw", "nhwc", "strided"}));
  app.add_option("--stale-after", stale_after_, "age from which a tuning is stale")
      ->type_name("TIME")
      ->capture_default_str();
  app.add_option("--top", top_, "rows of each table on the terminal")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app::SayColumns(&app, ReportColumns());
}

convtune::report::ReportFilter ReportOutput::Filter() const {
  convtune::report::ReportFilter filter;
  filter.gpu = gpu_;
  filter.problem = problem_;
  filter.operation = ParseOperation(operation_);
  filter.data_type = ParseDataType(data_type_);
  if (!layout_.empty()) {
    filter.layout = layout_ == "nhwc"   ? TensorLayout::kNhwc
                    : layout_ == "nchw" ? TensorLayout::kNchw
                                        : TensorLayout::kStrided;
  }
  return filter;
}

absl::StatusOr<convtune::report::ReportOptions> ReportOutput::Options() const {
  convtune::report::ReportOptions options;
  options.now = SystemClock().Now();
  ASSIGN_OR_RETURN(options.stale_after, output::ParseTime("--stale-after", stale_after_));
  return options;
}

absl::Status ReportOutput::Write(convtune::report::ReportData data,
                                 const convtune::report::ReportOptions& options, app::Format format,
                                 output::Io& io) const {
  if (format == app::Format::kCsv) {
    WriteReportCsv(data, io.out);
    if (html_.empty()) return absl::OkStatus();
  }
  const convtune::report::Report report = convtune::report::MakeReport(options, &data);
  if (!html_.empty()) {
    const std::string page = convtune::report::ReportHtml(data, report);
    ASSIGN_OR_RETURN(const std::unique_ptr<output::AtomicFile> file,
                     output::AtomicFile::Create(html_, "--html"));
    RETURN_IF_ERROR(file->Write(page));
    RETURN_IF_ERROR(file->Commit());
    io.err << "wrote " << html_ << ", " << output::FormatBytes(static_cast<int64_t>(page.size()))
           << "\n";
  }
  if (format == app::Format::kJson) {
    io.out << convtune::report::ReportJson(data, report) << "\n";
  } else if (format == app::Format::kTable && html_.empty()) {
    io.out << ReportTables(data, report, top_, io.out_is_terminal ? io.columns : 0,
                           output::WantsColor(io, io.out_is_terminal));
  }
  return absl::OkStatus();
}

}  // namespace convtune::cli::commands::report
