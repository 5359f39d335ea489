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
    NewStatsCommand, NewVersionCommand, NewReportCommand;

}  // namespace convtune::cli::commands
