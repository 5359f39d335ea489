// BanArgs are the options that say what is to be banned, and MakeBans makes the bans: those of a
// daemon and those of a fleet. Errata are cuDNN's engine errata as cudnn-frontend reads them, and
// PyTorch with it (CUDNN_ERRATA_JSON_FILE): rules of a JSON document that name engines to leave
// out.
#pragma once

#include <functional>
#include <istream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/app/program.h"
#include "client/cli/output/fields.h"
#include "convtune/v1/tuning_service.pb.h"

namespace convtune::cli::commands::ban {

app::NewVerb NewBanCommand;

// "bans/3" of a daemon, "bans/3, fleet ban 7" of one that its fleet brought, and "fleet ban 7"
// of the fleet.
std::string NamesOf(const v1::Ban& ban);

struct ErrataBans {
  std::vector<v1::Ban> bans;  // without author; the reason names the rule
  // Of each rule that is not among `bans`, why: it is not valid, or has a condition that a ban
  // cannot have, so that a ban would hold for more than the rule.
  std::vector<std::string> refused;
  std::vector<std::string> remarks;  // on rules among `bans` whose ban holds for more
};

// INVALID_ARGUMENT where `in` has no such document. `name` is the file's, for errors.
absl::StatusOr<ErrataBans> ReadErrata(std::istream& in, const std::string& name);

// One rule, or those of a file of errata. Not thread-safe.
class BanArgs {
 public:
  // *this must outlive `app`.
  void Register(CLI::App& app);

  // The bans that the options ask for, as they are given: whoever makes them checks them.
  // INVALID_ARGUMENT names an option. Only a file of errata has rules that are refused.
  absl::StatusOr<ErrataBans> Read() const;

  bool from_errata() const { return !errata_.empty(); }
  bool dry_run() const { return dry_run_; }

 private:
  v1::Ban given_;
  std::string errata_;  // the file
  bool dry_run_ = false;
};

// Makes the bans that the options ask for, and prints what they change. Of a file of errata
// those that are there already are left as they are. `create` makes a ban of a daemon or the
// fleet, or with --dry-run says what it would change; `fail` says an error.
app::ExitCode MakeBans(
    app::Context& context, const BanArgs& args,
    const std::function<absl::StatusOr<v1::CreateBanResponse>(const v1::Ban&)>& create,
    const std::function<app::ExitCode(const absl::Status&)>& fail);

// Whether the rows have the number of tunings that a ban changes. Only a daemon knows
// that number.
enum class TuningCounts { kNo, kYes };
output::Fields BanFields(const v1::Ban& ban, TuningCounts counts);
// Prints the bans as JSON errata. Says which of them no rule can stand for, which gives kFailed,
// and which have conditions that their rule lacks.
app::ExitCode PrintErrata(app::Context& context, const std::vector<v1::Ban>& bans);

}  // namespace convtune::cli::commands::ban
