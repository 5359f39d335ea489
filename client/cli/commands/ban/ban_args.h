// BanArgs are the options that say what is to be banned: one rule, or those of a file of
// errata. A daemon's bans and a fleet's have the same.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/commands/ban/errata.h"
#include "convtune/v1/tuning_service.pb.h"

namespace CLI {
class App;
}

namespace convtune::cli::commands::ban {

// Not thread-safe.
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
  absl::StatusOr<v1::Ban> ReadOne() const;
  absl::StatusOr<ErrataBans> ReadFile() const;
  // The conditions that options give to rules of errata, too.
  absl::Status AddShared(v1::Ban* ban) const;

  std::string pattern_, cudnn_, gpu_, operation_, data_type_, layout_;
  std::string reason_, author_, expires_, errata_;
  bool dry_run_ = false;
};

}  // namespace convtune::cli::commands::ban
