#include "client/cli/commands/report/report_output.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/commands/report/report_tables.h"
#include "client/cli/output/atomic_file.h"
#include "client/cli/output/units.h"
#include "client/report/report_csv.h"
#include "client/report/report_json.h"
#include "proto/base/status_macros.h"
#include "proto/convert/problem_list.h"

namespace convtune::cli {

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
}

report::ReportFilter ReportOutput::Filter() const {
  report::ReportFilter filter;
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

absl::StatusOr<report::ReportOptions> ReportOutput::Options() const {
  report::ReportOptions options;
  options.now = absl::Now();
  ASSIGN_OR_RETURN(options.stale_after, ParseTime("--stale-after", stale_after_));
  return options;
}

absl::Status ReportOutput::Write(const report::ReportData& data,
                                 const report::ReportOptions& options, Format format,
                                 Io& io) const {
  if (format == Format::kCsv) {
    report::WriteReportCsv(data, [&io](std::string_view part) { io.out << part; });
    if (html_.empty()) return absl::OkStatus();
  }
  const report::Report report = report::MakeReport(data, options);
  if (!html_.empty()) {
    const std::string page = report::ReportHtml(data, report);
    ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(html_, "--html"));
    RETURN_IF_ERROR(file->Write(page));
    RETURN_IF_ERROR(file->Commit());
    io.err << "wrote " << html_ << ", " << FormatBytes(static_cast<int64_t>(page.size())) << "\n";
  }
  if (format == Format::kJson) {
    io.out << report::ReportJson(data, report) << "\n";
  } else if (format == Format::kTable && html_.empty()) {
    io.out << ReportTables(data, report, top_, io.out_is_terminal ? io.columns : 0,
                           WantsColor(io, io.out_is_terminal));
  }
  return absl::OkStatus();
}

}  // namespace convtune::cli
