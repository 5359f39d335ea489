// Errata are cuDNN's engine errata as cudnn-frontend reads them, and PyTorch with it
// (CUDNN_ERRATA_JSON_FILE): rules of a JSON document that name engines to leave out.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "convtune/v1/tuning_service.pb.h"

namespace convtune::cli::commands::ban {

// "bans/3" of a daemon, "bans/3, fleet ban 7" of one that its fleet brought, and "fleet ban 7"
// of the fleet.
std::string NamesOf(const v1::Ban& ban);

// A remark on one rule or ban that the other form cannot say in full.
struct ErrataRemark {
  std::string subject;  // "rule avoid_eng12", "bans/3"
  std::string words;
};

struct ErrataBans {
  std::vector<v1::Ban> bans;  // without author; the reason names the rule
  // Rules that are no ban of `bans`: a condition that a ban does not have was left
  // aside otherwise, and more would be banned.
  std::vector<ErrataRemark> refused;
  std::vector<ErrataRemark> remarks;  // on rules that are
};

// INVALID_ARGUMENT where the text is no such document. `name` is the file's, for reasons.
absl::StatusOr<ErrataBans> ReadErrata(const std::string& text, const std::string& name);

struct ErrataDocument {
  std::string json;
  std::vector<ErrataRemark> left_out;  // bans that no rule of `json` stands for
  std::vector<ErrataRemark> remarks;   // on those that one does
};

// Cannot fail: bans are a daemon's or a fleet's own.
ErrataDocument WriteErrata(const std::vector<v1::Ban>& bans);

}  // namespace convtune::cli::commands::ban
