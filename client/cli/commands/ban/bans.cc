#include "client/cli/commands/ban/bans.h"

#include <CLI/CLI.hpp>
#include <fstream>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/commands/commands.h"
#include "client/cli/input/options.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/units.h"
#include "proto/base/clock.h"
#include "proto/base/errors.h"
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
  return InvalidArgument(
      "--expires: must be a time such as 72h, or a date such as 2027-01-31, is '", text, "'");
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
  context.Say(dry_run ? "would ban " : absl::StrCat(NamesOf(ban), " bans "), ban.candidate(), " (",
              Where(ban), ") until ", Until(ban), ": ",
              output::Counted(created.listed_count(), "tuning lists", "tunings list"),
              " such a candidate, ", output::Counted(created.change_count(), "has", "have"),
              " another winner, ", created.lost_count(), " of these no candidate that is left");
  std::vector<std::string> pins;
  for (const v1::BanChange& change : created.changes()) {
    if (!change.pinned()) continue;
    pins.push_back(absl::StrCat(change.problem_text(), " in ", change.environment()));
  }
  if (!pins.empty()) {
    context.Say(output::Counted(std::ssize(pins), "pin has", "pins have"),
                " no effect while the ban holds: ", absl::StrJoin(pins, ", "));
  }
  if (created.changes_size() < created.change_count()) {
    context.Say("these are the first ", created.changes_size(), " changes");
  }
}

class BanCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app =
        AddVerb(root, "ban", "keep candidates from being an answer, by a rule; or list, delete");
    args_.Register(*app);
    list_ =
        AddVerbBelow(app, "list", "all bans: those that came with convtune, then the oldest first",
                     BanFields({}, TuningCounts::kYes));
    list_->add_flag("--errata", as_errata_,
                    "as JSON errata, which cudnn-frontend and PyTorch read");
    delete_ = AddVerbBelow(app, "delete", "end a ban");
    delete_->add_option("ban", name_, "number of the ban")->type_name("BAN")->required();
    delete_->add_option("--fleet-ban", fleet_ban_,
                        "number of a fleet ban; only after this node left the fleet");
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    if (list_->parsed()) return List(context);
    if (delete_->parsed()) return Delete(context);
    bool made = false;
    const auto create = [&](const v1::Ban& ban) {
      v1::CreateBanRequest request;
      *request.mutable_ban() = ban;
      request.set_dry_run(args_.dry_run());
      auto created = context.Call<v1::CreateBanResponse>(request, context.long_timeout());
      made = made || (created.ok() && !args_.dry_run());
      return created;
    };
    const app::ExitCode code = MakeBans(
        context, args_, create, [&](const absl::Status& status) { return context.Fail(status); });
    return made ? app::Worse(code, AwaitPublished(context)) : code;
  }

 private:
  absl::StatusOr<app::ExitCode> List(app::Context& context) const {
    ASSIGN_OR_RETURN(const auto list, context.Call<v1::ListBansResponse>(v1::ListBansRequest()));
    std::vector<v1::Ban> bans(list.bans().begin(), list.bans().end());
    if (as_errata_) {
      // cudnn-frontend's form lacks their conditions, and PyTorch has them in its code.
      const size_t shipped = std::erase_if(bans, [](const v1::Ban& ban) { return ban.shipped(); });
      if (shipped > 0) context.Say(shipped, " that came with convtune are left out");
      return PrintErrata(context, bans);
    }
    context.PrintJson(list);
    context.PrintRows(bans, [](const v1::Ban& ban) { return BanFields(ban, TuningCounts::kYes); });
    if (bans.empty() && context.format() != app::Format::kJson) context.Say("nothing is banned");
    return app::ExitCode::kDone;
  }

  absl::StatusOr<app::ExitCode> Delete(app::Context& context) const {
    v1::DeleteBanRequest request;
    request.set_name(name_.find('/') == std::string::npos ? "bans/" + name_ : name_);
    request.set_fleet_ban(fleet_ban_);
    ASSIGN_OR_RETURN(const auto deleted,
                     context.Call<v1::DeleteBanResponse>(request, context.long_timeout()));
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
  app.add_option("pattern", *given_.mutable_candidate(),
                 "candidates to ban, such as eng47, 'eng47,k2=*' or 'legacy:*'")
      ->type_name("PATTERN");
  app.add_option("--cudnn", *given_.mutable_cudnn(),
                 "versions of cuDNN, such as '<9.20' or '>=9.12,<9.20'")
      ->type_name("VERSIONS");
  app.add_option(
         "--gpu", *given_.mutable_gpu(),
         "GPU model or compute capability, such as *h200 or sm_120; a profile counts as its GPU")
      ->type_name("GLOB");
  app.add_option_function<std::string>(
         "--op",
         [this](const std::string& word) {
           given_.set_operation(static_cast<v1::Operation>(*ParseOperation(word)));
         },
         "operation of the problem")
      ->check(CLI::IsMember({"fwd", "bwd_data", "bwd_filter"}));
  app.add_option_function<std::string>(
         "--dtype",
         [this](const std::string& word) {
           given_.set_data_type(static_cast<v1::DataType>(*ParseLooseDataType(word)));
         },
         "data type of the problem's inputs")
      ->check([](const std::string& word) -> std::string {
        return ParseLooseDataType(word) ? "" : "must be a data type such as f16, is " + word;
      })
      ->type_name("TYPE");
  app.add_option_function<std::string>(
         "--layout",
         [this](const std::string& word) {
           const auto layout = ParseLooseLayout(word).value_or(TensorLayout::kStrided);
           given_.set_layout(static_cast<v1::TensorLayout>(layout));
         },
         "layout of the problem")
      ->check(CLI::IsMember({"nchw", "nhwc", "strided"}));
  app.add_option("--reason", *given_.mutable_reason(), "the reason, for those who find it later")
      ->type_name("TEXT");
  app.add_option("--author", *given_.mutable_author(), "who decides; without it your user name")
      ->type_name("NAME");
  app.add_option_function<std::string>(
         "--expires",
         [this](const std::string& text) {
           const absl::StatusOr<absl::Time> end = ParseExpiry(text);
           if (!end.ok()) throw CLI::ValidationError(std::string(end.status().message()));
           given_.mutable_expire_time()->set_seconds(absl::ToUnixSeconds(*end));
         },
         "end of the ban, such as 72h or 2027-01-31; without it until delete")
      ->type_name("TIME|DATE");
  CLI::Option* const errata =
      app.add_option("--errata", errata_,
                     "a ban for each rule of a JSON file of cuDNN engine errata")
          ->check(CLI::ExistingFile.description(""))
          ->type_name("FILE");
  for (const char* in_rules : {"--cudnn", "--op", "--layout"}) {
    errata->excludes(app.get_option(in_rules));
  }
  app.add_flag("--dry-run", dry_run_, "only say which stored tunings would have another winner");
}

absl::StatusOr<ErrataBans> BanArgs::Read() const {
  if (given_.candidate().empty() == errata_.empty()) {
    return absl::InvalidArgumentError("ban: give a PATTERN or --errata FILE");
  }
  ErrataBans out;
  if (from_errata()) {
    std::ifstream file(errata_, std::ios::binary);
    if (!file) return InvalidArgument("--errata: ", errata_, " cannot be read");
    ASSIGN_OR_RETURN(out, ReadErrata(file, errata_));
  } else {
    if (given_.reason().empty()) return absl::InvalidArgumentError("--reason: must be given");
    out.bans.emplace_back();
  }
  for (v1::Ban& ban : out.bans) {
    const std::string reason = ban.reason();  // names the rule
    ban.MergeFrom(given_);
    const bool both = !reason.empty() && !given_.reason().empty();
    ban.set_reason(absl::StrCat(reason, both ? ": " : "", given_.reason()));
    ban.set_author(input::AuthorOf(given_.author()));
  }
  return out;
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

app::ExitCode MakeBans(
    app::Context& context, const BanArgs& args,
    const std::function<absl::StatusOr<v1::CreateBanResponse>(const v1::Ban&)>& create,
    const std::function<app::ExitCode(const absl::Status&)>& fail) {
  const absl::StatusOr<ErrataBans> asked = args.Read();
  if (!asked.ok()) return fail(asked.status());
  for (const std::string& remark : asked->remarks) context.Say(remark);
  for (const std::string& refused : asked->refused) context.SayError(refused);
  app::ExitCode code = asked->refused.empty() ? app::ExitCode::kDone : app::ExitCode::kFailed;
  std::vector<output::Json> documents;
  for (const v1::Ban& ban : asked->bans) {
    const absl::StatusOr<v1::CreateBanResponse> created = create(ban);
    if (absl::IsAlreadyExists(created.status()) && args.from_errata()) {
      context.Say(created.status().message());
      continue;
    }
    if (!created.ok()) {
      code = app::Worse(code, fail(created.status()));
      continue;
    }
    documents.push_back(output::JsonMessage(*created));
    PrintChanges(context, *created, args.dry_run());
  }
  context.PrintJson({{"created", documents}});
  return code;
}

std::unique_ptr<app::Command> NewBanCommand() { return std::make_unique<BanCommand>(); }

}  // namespace convtune::cli::commands::ban
