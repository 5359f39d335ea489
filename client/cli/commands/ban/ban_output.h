// Functions that make bans and print them, those of a daemon and those of a fleet.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/app/context.h"
#include "client/cli/commands/ban/ban_args.h"
#include "client/cli/output/fields.h"
#include "convtune/v1/tuning_service.pb.h"

namespace convtune::cli::commands::ban {

// A BanKeeper makes bans: a daemon's or the fleet's.
struct BanKeeper {
  // Makes the ban, or with --dry-run says what it would change.
  std::function<absl::StatusOr<v1::CreateBanResponse>(const v1::Ban&)> create;
  // Says the error.
  std::function<app::ExitCode(const absl::Status&)> fail;
};

// Makes the bans that the options ask for, and prints what they change. Of a file of errata
// those that are there already are left as they are.
app::ExitCode MakeBans(app::Context& context, const BanArgs& args, const BanKeeper& keeper);

// Whether the rows have the number of tunings that a ban changes. Only a daemon knows
// that number.
enum class TuningCounts { kNo, kYes };
output::Fields BanFields(const v1::Ban& ban, TuningCounts counts);
// Prints a row for each ban, or "nothing is banned".
void PrintBans(app::Context& context, const std::vector<v1::Ban>& bans, TuningCounts counts);
// As JSON errata.
app::ExitCode PrintErrata(app::Context& context, const std::vector<v1::Ban>& bans);

}  // namespace convtune::cli::commands::ban
