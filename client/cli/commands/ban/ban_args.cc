#include "client/cli/commands/ban/ban_args.h"

#include <CLI/CLI.hpp>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "client/cli/input/author.h"
#include "client/cli/output/units.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/model/enums.h"

namespace convtune::cli::commands::ban {
namespace {

// A time from now on, or a date.
absl::StatusOr<absl::Time> ParseExpiry(const std::string& text) {
  absl::Time time;
  std::string error;
  if (absl::ParseTime("%Y-%m-%d", text, &time, &error) ||
      absl::ParseTime(absl::RFC3339_full, text, &time, &error)) {
    return time;
  }
  const absl::StatusOr<absl::Duration> after = output::ParseTime("--expires", text);
  if (after.ok()) return SystemClock().Now() + *after;
  return absl::InvalidArgumentError(absl::StrCat(
      "--expires: must be a time such as 72h, or a date such as 2027-01-31, is '", text, "'"));
}

absl::StatusOr<std::string> ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  if (file) text << file.rdbuf();
  if (!file || !text) {
    return absl::InvalidArgumentError(absl::StrCat("--errata: ", path, " cannot be read"));
  }
  return text.str();
}

}  // namespace

void BanArgs::Register(CLI::App& app) {
  app.add_option("pattern", pattern_,
                 "candidates to ban, such as eng47, 'eng47,k2=*' or 'legacy:*'")
      ->type_name("PATTERN");
  app.add_option("--cudnn", cudnn_, "versions of cuDNN, such as '<9.20' or '>=9.12,<9.20'")
      ->type_name("VERSIONS");
  app.add_option(
         "--gpu", gpu_,
         "GPU model or compute capability, such as *h200 or sm_120; a profile counts as its GPU")
      ->type_name("GLOB");
  app.add_option("--op", operation_, "operation of the problem")
      ->check(CLI::IsMember({"fwd", "bwd_data", "bwd_filter"}));
  app.add_option("--dtype", data_type_, "data type of the problem's inputs")->type_name("TYPE");
  app.add_option("--layout", layout_, "layout of the problem")
      ->check(CLI::IsMember({"nchw", "nhwc", "strided"}));
  app.add_option("--reason", reason_, "the reason, for those who find it later")->type_name("TEXT");
  app.add_option("--author", author_, "who decides; without it your user name")->type_name("NAME");
  app.add_option("--expires", expires_,
                 "end of the ban, such as 72h or 2027-01-31; without it until delete")
      ->type_name("TIME|DATE");
  app.add_option("--errata", errata_, "a ban for each rule of a JSON file of cuDNN engine errata")
      ->type_name("FILE");
  app.add_flag("--dry-run", dry_run_, "only say which stored tunings would have another winner");
}

absl::StatusOr<ErrataBans> BanArgs::Read() const {
  if (pattern_.empty() == errata_.empty()) {
    return absl::InvalidArgumentError("ban: give a PATTERN or --errata FILE");
  }
  if (from_errata()) return ReadFile();
  ErrataBans out;
  ASSIGN_OR_RETURN(v1::Ban ban, ReadOne());
  out.bans.push_back(std::move(ban));
  return out;
}

absl::StatusOr<v1::Ban> BanArgs::ReadOne() const {
  if (reason_.empty()) return absl::InvalidArgumentError("--reason: must be given");
  v1::Ban ban;
  ban.set_candidate(pattern_);
  ban.set_cudnn(cudnn_);
  ban.set_reason(reason_);
  if (!operation_.empty()) {
    ban.set_operation(static_cast<v1::Operation>(*ParseOperation(operation_)));
  }
  if (layout_ == "nchw") ban.set_layout(v1::TENSOR_LAYOUT_NCHW);
  if (layout_ == "nhwc") ban.set_layout(v1::TENSOR_LAYOUT_NHWC);
  if (layout_ == "strided") ban.set_layout(v1::TENSOR_LAYOUT_STRIDED);
  RETURN_IF_ERROR(AddShared(&ban));
  return ban;
}

absl::StatusOr<ErrataBans> BanArgs::ReadFile() const {
  for (const auto& [option, value] :
       {std::pair{"--cudnn", &cudnn_}, {"--op", &operation_}, {"--layout", &layout_}}) {
    if (!value->empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(option, ": cannot be given with --errata, whose rules say it"));
    }
  }
  ASSIGN_OR_RETURN(const std::string text, ReadWhole(errata_));
  ASSIGN_OR_RETURN(ErrataBans errata, ReadErrata(text, errata_));
  for (v1::Ban& ban : errata.bans) {
    if (!reason_.empty()) ban.set_reason(absl::StrCat(ban.reason(), ": ", reason_));
    RETURN_IF_ERROR(AddShared(&ban));
  }
  return errata;
}

absl::Status BanArgs::AddShared(v1::Ban* ban) const {
  ban->set_gpu(gpu_);
  ban->set_author(input::AuthorOf(author_));
  if (!data_type_.empty()) {
    const std::optional<DataType> type = ParseLooseDataType(data_type_);
    if (!type) {
      return absl::InvalidArgumentError(
          absl::StrCat("--dtype: must be a data type such as f16, is '", data_type_, "'"));
    }
    ban->set_data_type(static_cast<v1::DataType>(*type));
  }
  if (expires_.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const absl::Time time, ParseExpiry(expires_));
  ban->mutable_expire_time()->set_seconds(absl::ToUnixSeconds(time));
  return absl::OkStatus();
}

}  // namespace convtune::cli::commands::ban
