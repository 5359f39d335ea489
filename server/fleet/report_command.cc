#include <CLI/CLI.hpp>
#include <iostream>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/cli/commands/report/report_output.h"
#include "client/cli/output/io.h"
#include "proto/base/status_macros.h"
#include "server/fleet/commands.h"
#include "server/fleet/report_source.h"

namespace convtune::fleet {
namespace {

constexpr absl::Duration kShowEvery = absl::Milliseconds(100);

class FleetReportCommand final : public FleetCommand {
 public:
  void Register(CLI::App& root) override {
    CLI::App* const app =
        AddVerb(root, "report", "what wins, what it gains, who disagrees, what got slower",
                [this] { return Run(); });
    app->add_flag("--csv", csv_, "print the rows as CSV")->excludes("--json");
    output_.Register(*app);
  }

 private:
  absl::Status Run() {
    cli::output::Io io = cli::output::TerminalIo();
    ASSIGN_OR_RETURN(const report::ReportOptions options, output_.Options());
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    RETURN_IF_ERROR(PoolEverything(*postgres));
    report::ReportData data(output_.Filter());
    absl::Time next = absl::Now() + kShowEvery;
    bool shown = false;
    const absl::Status read = AddFleet(*postgres, &data, [&](int64_t done, int64_t total) {
      if (!io.err_is_terminal || absl::Now() < next) return;
      io.err << absl::StrFormat("\rreading  %d of %d rows", done, total) << std::flush;
      next = absl::Now() + kShowEvery;
      shown = true;
    });
    if (shown) io.err << "\r\x1b[K" << std::flush;
    RETURN_IF_ERROR(read);
    const cli::app::Format format = json_  ? cli::app::Format::kJson
                                    : csv_ ? cli::app::Format::kCsv
                                           : cli::app::Format::kTable;
    return output_.Write(std::move(data), options, format, io);
  }

  cli::commands::report::ReportOutput output_;
  bool csv_ = false;
};

}  // namespace

std::unique_ptr<FleetCommand> NewFleetReportCommand() {
  return std::make_unique<FleetReportCommand>();
}

}  // namespace convtune::fleet
