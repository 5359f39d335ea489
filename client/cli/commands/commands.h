// RunCli runs the program, which has every verb. commands.cc also has the verbs completion, which
// needs the list of all verbs, and fleet, which starts another program.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "client/cli/app/context.h"
#include "client/cli/app/program.h"
#include "client/cli/output/io.h"

namespace convtune::cli::commands {

// Runs the command that `arguments` (without the program's name) say, and returns its exit code,
// see app/context.h.
int RunCli(const std::vector<std::string>& arguments, output::Io& io);

// Waits until unmodified programs are served what the daemon took. Else says why not: kUnheeded.
app::ExitCode AwaitPublished(app::Context& context);

std::unique_ptr<app::Command> NewGetCommand();
std::unique_ptr<app::Command> NewTuneCommand();
std::unique_ptr<app::Command> NewListCommand();
std::unique_ptr<app::Command> NewPinCommand();
std::unique_ptr<app::Command> NewUnpinCommand();
std::unique_ptr<app::Command> NewDeleteCommand();
std::unique_ptr<app::Command> NewExportCommand();
std::unique_ptr<app::Command> NewImportCommand();
std::unique_ptr<app::Command> NewVerifyCommand();
std::unique_ptr<app::Command> NewMergeCommand();
std::unique_ptr<app::Command> NewEnvironmentsCommand();
std::unique_ptr<app::Command> NewJobsCommand();
std::unique_ptr<app::Command> NewReleaseCommand();
std::unique_ptr<app::Command> NewWantedCommand();
std::unique_ptr<app::Command> NewDbCommand();
std::unique_ptr<app::Command> NewStatsCommand();
std::unique_ptr<app::Command> NewVersionCommand();

namespace advise {
std::unique_ptr<app::Command> NewAdviseCommand();
}  // namespace advise

namespace ban {
std::unique_ptr<app::Command> NewBanCommand();
}  // namespace ban

namespace doctor {
std::unique_ptr<app::Command> NewDoctorCommand();
}  // namespace doctor

namespace explain {
std::unique_ptr<app::Command> NewExplainCommand();
}  // namespace explain

namespace lint {
std::unique_ptr<app::Command> NewLintCommand();
}  // namespace lint

namespace report {
std::unique_ptr<app::Command> NewReportCommand();
}  // namespace report

namespace run {
std::unique_ptr<app::Command> NewRunCommand();
}  // namespace run

namespace upgrade {
std::unique_ptr<app::Command> NewUpgradeCheckCommand();
std::unique_ptr<app::Command> NewWhyCommand();
}  // namespace upgrade

namespace warm {
std::unique_ptr<app::Command> NewWarmCommand();
}  // namespace warm

}  // namespace convtune::cli::commands
