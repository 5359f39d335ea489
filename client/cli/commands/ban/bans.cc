#include "client/cli/commands/ban/bans.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <fstream>
#include <ostream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/commands/commands.h"
#include "client/cli/input/options.h"
#include "client/cli/input/problem_args.h"
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

// Where the ban holds: "cudnn <9.20.0, gpu *h200, fwd f16 nhwc".
std::string Where(const v1::Ban& ban) {
  std::vector<std::string> parts;
  if (!ban.cudnn().empty()) parts.push_back("cudnn " + ban.cudnn());
  if (!ban.gpu().empty()) parts.push_back("gpu " + ban.gpu());
  std::vector<std::string> problem;
  if (ban.operation() != v1::OPERATION_UNSPECIFIED) {
    problem.emplace_back(Name(static_cast<Operation>(ban.operation())));
  }
  if (ban.data_type() != v1::DATA_TYPE_UNSPECIFIED) {
    problem.emplace_back(Name(static_cast<DataType>(ban.data_type())));
  }
  if (ban.layout() != v1::TENSOR_LAYOUT_UNSPECIFIED) {
    problem.emplace_back(Name(static_cast<TensorLayout>(ban.layout())));
  }
  if (ban.spatial_rank() != 0) problem.push_back(absl::StrCat(ban.spatial_rank(), "-D"));
  if (!problem.empty()) parts.push_back(absl::StrJoin(problem, " "));
  return parts.empty() ? "everywhere" : absl::StrJoin(parts, ", ");
}

std::string Until(const v1::Ban& ban) {
  if (ban.shipped()) return "--no-errata";
  return ban.has_expire_time() ? output::FormatTimestamp(ban.expire_time()) : "deleted";
}

std::string Count(int64_t count, const char* one, const char* several) {
  return absl::StrCat(count, " ", count == 1 ? one : several);
}

output::Fields BanChangeFields(const v1::BanChange& change) {
  const std::string ratio = change.ratio() > 0 ? absl::StrFormat("%.2fx", change.ratio()) : "-";
  return {{"", "PROBLEM", input::ProblemValue(change.problem_text())},
          {"", "ENVIRONMENT", change.environment()},
          {"", "BEFORE", absl::StrCat(change.before(), change.pinned() ? " (pinned)" : "")},
          {"", "AFTER", change.after().empty() ? "none is left" : change.after()},
          {"", "TIME", output::Value(ratio).Right()}};
}

void PrintChanges(app::Context& context, const v1::CreateBanResponse& created, bool dry_run) {
  const v1::Ban& ban = created.ban();
  context.PrintRows(created.changes(), BanChangeFields);
  context.Say(absl::StrCat(dry_run ? "would ban " : absl::StrCat(NamesOf(ban), " bans "),
                           ban.candidate(), " (", Where(ban), ") until ", Until(ban), ": ",
                           Count(created.listed_count(), "tuning lists", "tunings list"),
                           " such a candidate, ", created.change_count(), " ",
                           created.change_count() == 1 ? "has" : "have", " another winner, ",
                           created.lost_count(), " of these no candidate that is left"));
  std::vector<std::string> pins;
  for (const v1::BanChange& change : created.changes()) {
    if (!change.pinned()) continue;
    pins.push_back(absl::StrCat(change.problem_text(), " in ", change.environment()));
  }
  if (!pins.empty()) {
    context.Say(absl::StrCat(Count(std::ssize(pins), "pin has", "pins have"),
                             " no effect while the ban holds: ", absl::StrJoin(pins, ", ")));
  }
  if (created.changes_size() < created.change_count()) {
    context.Say(absl::StrCat("these are the first ", created.changes_size(), " changes"));
  }
}

class BanCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app =
        AddVerb(root, "ban", "keep candidates from being an answer, by a rule; or list, delete",
                app::Rows::kNo);
    args_.Register(*app);
    list_ =
        AddVerbBelow(app, "list", "all bans: those that came with convtune, then the oldest first",
                     app::Rows::kYes);
    list_->add_flag("--errata", as_errata_,
                    "as JSON errata, which cudnn-frontend and PyTorch read");
    app::SayColumns(list_, BanFields({}, TuningCounts::kYes));
    delete_ = AddVerbBelow(app, "delete", "end a ban", app::Rows::kNo);
    delete_->add_option("ban", name_, "number of the ban")->type_name("BAN")->required();
    delete_->add_option("--fleet-ban", fleet_ban_,
                        "number of a fleet ban; only after this node left the fleet");
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    if (list_->parsed()) return List(context);
    if (delete_->parsed()) return Delete(context);
    BanKeeper daemon;
    bool made = false;
    daemon.create = [&](const v1::Ban& ban) -> absl::StatusOr<v1::CreateBanResponse> {
      ASSIGN_OR_RETURN(client::Client* const client, context.Connect());
      v1::CreateBanRequest request;
      *request.mutable_ban() = ban;
      request.set_dry_run(args_.dry_run());
      auto created = client->Call<v1::CreateBanResponse>(request, context.long_timeout());
      made = made || (created.ok() && !args_.dry_run());
      return created;
    };
    daemon.fail = [&](const absl::Status& status) { return context.Fail(status); };
    const app::ExitCode code = MakeBans(context, args_, daemon);
    return made ? app::Worse(code, AwaitPublished(context)) : code;
  }

 private:
  absl::StatusOr<app::ExitCode> List(app::Context& context) const {
    ASSIGN_OR_RETURN(const auto client, context.Connect());
    ASSIGN_OR_RETURN(const auto list, client->Call<v1::ListBansResponse>(v1::ListBansRequest()));
    std::vector<v1::Ban> bans(list.bans().begin(), list.bans().end());
    if (as_errata_) {
      // cudnn-frontend's form lacks their conditions, and PyTorch has them in its code.
      const size_t shipped = std::erase_if(bans, [](const v1::Ban& ban) { return ban.shipped(); });
      if (shipped > 0) context.Say(absl::StrCat(shipped, " that came with convtune are left out"));
      return PrintErrata(context, bans);
    }
    context.PrintJson(list);
    PrintBans(context, bans);
    return app::ExitCode::kDone;
  }

  absl::StatusOr<app::ExitCode> Delete(app::Context& context) const {
    v1::DeleteBanRequest request;
    const bool is_number = !name_.empty() && std::all_of(name_.begin(), name_.end(), [](char c) {
      return std::isdigit(static_cast<uint8_t>(c));
    });
    request.set_name(is_number ? "bans/" + name_ : name_);
    request.set_fleet_ban(fleet_ban_);
    ASSIGN_OR_RETURN(const auto client, context.Connect());
    ASSIGN_OR_RETURN(const auto deleted,
                     client->Call<v1::DeleteBanResponse>(request, context.long_timeout()));
    context.PrintJson({{"deleted", request.name()}});
    context.Say("deleted " + request.name());
    return AwaitPublished(context);
  }

  BanArgs args_;
  CLI::App* list_ = nullptr;
  CLI::App* delete_ = nullptr;
  std::string name_;
  int64_t fleet_ban_ = 0;
  bool as_errata_ = false;
};

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

output::Fields BanFields(const v1::Ban& ban, TuningCounts counts) {
  const auto name = [](auto value) {
    return static_cast<int>(value) == 0 ? std::string() : std::string(Name(value));
  };
  return {{"ban", "BAN", output::Value(ban.name()).Shown(NamesOf(ban))},
          {"candidate", "CANDIDATES", ban.candidate()},
          {"", "WHERE", Where(ban)},
          {"cudnn", "", ban.cudnn()},
          {"gpu", "", ban.gpu()},
          {"operation", "", name(static_cast<Operation>(ban.operation()))},
          {"data_type", "", name(static_cast<DataType>(ban.data_type()))},
          {"layout", "", name(static_cast<TensorLayout>(ban.layout()))},
          {"author", "AUTHOR", ban.author()},
          {"", "UNTIL", Until(ban)},
          {"", counts == TuningCounts::kYes ? "TUNINGS" : "", ban.tuning_count()},
          {"reason", "REASON", ban.reason()},
          {"created", "", output::FormatTimestamp(ban.create_time())},
          {"expires", "", ban.has_expire_time() ? output::FormatTimestamp(ban.expire_time()) : ""},
          {"tunings", "", ban.tuning_count()},
          {"fleet_ban", "", ban.fleet_ban()},
          {"spatial_rank", "", ban.spatial_rank()},
          {"shipped", "", ban.shipped()}};
}

app::ExitCode MakeBans(app::Context& context, const BanArgs& args, const BanKeeper& keeper) {
  const absl::StatusOr<ErrataBans> asked = args.Read();
  if (!asked.ok()) return keeper.fail(asked.status());
  for (const ErrataRemark& remark : asked->remarks) {
    context.Say(absl::StrCat(remark.subject, ": ", remark.words));
  }
  for (const ErrataRemark& refused : asked->refused) {
    context.SayError(absl::StrCat(refused.subject, " is not taken: ", refused.words));
  }
  app::ExitCode code = asked->refused.empty() ? app::ExitCode::kDone : app::ExitCode::kFailed;
  std::vector<output::Json> documents;
  for (const v1::Ban& ban : asked->bans) {
    const absl::StatusOr<v1::CreateBanResponse> created = keeper.create(ban);
    if (absl::IsAlreadyExists(created.status()) && args.from_errata()) {
      context.Say(std::string(created.status().message()));
      continue;
    }
    if (!created.ok()) {
      code = app::Worse(code, keeper.fail(created.status()));
      continue;
    }
    documents.push_back(output::JsonMessage(*created));
    PrintChanges(context, *created, args.dry_run());
  }
  context.PrintJson({{"created", documents}});
  return code;
}

void PrintBans(app::Context& context, const std::vector<v1::Ban>& bans) {
  context.PrintRows(bans, [](const v1::Ban& ban) { return BanFields(ban, TuningCounts::kYes); });
  if (bans.empty() && context.format() != app::Format::kJson) context.Say("nothing is banned");
}

app::ExitCode PrintErrata(app::Context& context, const std::vector<v1::Ban>& bans) {
  const ErrataDocument document = WriteErrata(bans);
  context.io().out << document.json << "\n";
  for (const ErrataRemark& remark : document.remarks) {
    context.Say(absl::StrCat(remark.subject, ": ", remark.words));
  }
  for (const ErrataRemark& left : document.left_out) {
    context.SayError(absl::StrCat(left.subject, " is left out: ", left.words));
  }
  return document.left_out.empty() ? app::ExitCode::kDone : app::ExitCode::kFailed;
}

std::unique_ptr<app::Command> NewBanCommand() { return std::make_unique<BanCommand>(); }

}  // namespace convtune::cli::commands::ban
