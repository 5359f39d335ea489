// RunCli runs the program, which has every verb. commands.cc also has the verbs completion, which
// needs the list of all verbs, and fleet, which starts another program.
#pragma once

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

app::NewVerb NewGetCommand, NewTuneCommand, NewListCommand, NewPinCommand, NewUnpinCommand,
    NewDeleteCommand, NewExportCommand, NewImportCommand, NewVerifyCommand, NewMergeCommand,
    NewEnvironmentsCommand, NewJobsCommand, NewReleaseCommand, NewWantedCommand, NewDbCommand,
    NewStatsCommand, NewVersionCommand;

namespace advise {
app::NewVerb NewAdviseCommand;
}  // namespace advise

namespace ban {
app::NewVerb NewBanCommand;
}  // namespace ban

namespace doctor {
app::NewVerb NewDoctorCommand;
}  // namespace doctor

namespace explain {
app::NewVerb NewExplainCommand;
}  // namespace explain

namespace lint {
app::NewVerb NewLintCommand;
}  // namespace lint

namespace report {
app::NewVerb NewReportCommand;
}  // namespace report

namespace run {
app::NewVerb NewRunCommand;
}  // namespace run

namespace upgrade {
app::NewVerb NewUpgradeCheckCommand, NewWhyCommand;
}  // namespace upgrade

namespace warm {
app::NewVerb NewWarmCommand;
}  // namespace warm

}  // namespace convtune::cli::commands
