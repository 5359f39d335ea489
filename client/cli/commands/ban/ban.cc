#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <fstream>
#include <ostream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "client/cli/app/command.h"
#include "client/cli/commands/ban/errata.h"
#include "client/cli/input/author.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/json.h"
#include "client/cli/output/table.h"
#include "client/cli/output/units.h"
#include "proto/base/status_macros.h"

namespace convtune::cli {
namespace {

// A time from now on, or a date.
absl::StatusOr<absl::Time> ParseExpiry(const std::string& text) {
  absl::Time time;
  std::string error;
  if (absl::ParseTime("%Y-%m-%d", text, &time, &error) ||
      absl::ParseTime(absl::RFC3339_full, text, &time, &error)) {
    return time;
  }
  const absl::StatusOr<absl::Duration> after = ParseTime("--expires", text);
  if (after.ok()) return absl::Now() + *after;
  return absl::InvalidArgumentError(absl::StrCat(
      "--expires: must be a time such as 72h, or a date such as 2027-01-31, is '", text, "'"));
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
  if (!problem.empty()) parts.push_back(absl::StrJoin(problem, " "));
  return parts.empty() ? "everywhere" : absl::StrJoin(parts, ", ");
}

std::string Until(const v1::Ban& ban) {
  return ban.has_expire_time() ? FormatTimestamp(ban.expire_time()) : "deleted";
}

std::string Count(int64_t count, const char* one, const char* several) {
  return absl::StrCat(count, " ", count == 1 ? one : several);
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

class BanCommand final : public Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(
        root, "ban", "keep candidates from being an answer, by a rule; or list, delete", Rows::kNo);
    app->add_option("pattern", pattern_, "such as eng47, 'eng47,k2=*' or 'legacy:*'")
        ->type_name("PATTERN");
    app->add_option("--cudnn", cudnn_, "versions, such as '<9.20' or '>=9.12,<9.20'")
        ->type_name("VERSIONS");
    app->add_option("--gpu", gpu_, "model, in which * stands for any text")->type_name("GLOB");
    app->add_option("--op", operation_, "of the problem")
        ->check(CLI::IsMember({"fwd", "bwd_data", "bwd_filter"}));
    app->add_option("--dtype", data_type_, "of the problem's inputs")->type_name("TYPE");
    app->add_option("--layout", layout_, "of the problem")
        ->check(CLI::IsMember({"nchw", "nhwc", "strided"}));
    app->add_option("--reason", reason_, "why, for those who find it later")->type_name("TEXT");
    app->add_option("--author", author_, "who; without it your user name")->type_name("NAME");
    app->add_option("--expires", expires_, "such as 72h or 2027-01-31; without it until delete")
        ->type_name("TIME|DATE");
    app->add_option("--errata", errata_,
                    "a ban for each rule of a JSON file of cuDNN engine errata")
        ->type_name("FILE");
    app->add_flag("--dry-run", dry_run_, "only say what it would change");
    list_ = AddVerbBelow(app, "list", "all bans, oldest first", Rows::kYes);
    list_->add_flag("--errata", as_errata_,
                    "as JSON errata, which cudnn-frontend and PyTorch read");
    delete_ = AddVerbBelow(app, "delete", "end a ban", Rows::kNo);
    delete_->add_option("ban", name_, "its number")->type_name("BAN")->required();
  }

  ExitCode Run(Context& context) override {
    if (list_->parsed()) return List(context);
    if (delete_->parsed()) return Delete(context);
    if (pattern_.empty() == errata_.empty()) {
      return context.Fail(absl::InvalidArgumentError("ban: give a PATTERN or --errata FILE"));
    }
    if (!errata_.empty()) return Import(context);
    if (reason_.empty()) {
      return context.Fail(absl::InvalidArgumentError("--reason: must be given"));
    }
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
    if (const absl::Status status = AddShared(&ban); !status.ok()) return context.Fail(status);
    return Create(context, {ban});
  }

 private:
  // The conditions that options give to rules of errata, too.
  absl::Status AddShared(v1::Ban* ban) const {
    ban->set_gpu(gpu_);
    ban->set_author(AuthorOf(author_));
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

  ExitCode Import(Context& context) const {
    for (const auto& [option, value] :
         {std::pair{"--cudnn", &cudnn_}, {"--op", &operation_}, {"--layout", &layout_}}) {
      if (!value->empty()) {
        return context.Fail(absl::InvalidArgumentError(
            absl::StrCat(option, ": cannot be given with --errata, whose rules say it")));
      }
    }
    const absl::StatusOr<std::string> text = ReadWhole(errata_);
    if (!text.ok()) return context.Fail(text.status());
    absl::StatusOr<ErrataBans> errata = ReadErrata(*text, errata_);
    if (!errata.ok()) return context.Fail(errata.status());
    for (v1::Ban& ban : errata->bans) {
      if (!reason_.empty()) ban.set_reason(absl::StrCat(ban.reason(), ": ", reason_));
      if (const absl::Status status = AddShared(&ban); !status.ok()) return context.Fail(status);
    }
    for (const ErrataRemark& remark : errata->remarks) {
      context.Say(absl::StrCat(remark.subject, ": ", remark.words));
    }
    for (const ErrataRemark& refused : errata->refused) {
      context.SayError(absl::StrCat(refused.subject, " is not taken: ", refused.words));
    }
    const ExitCode code = Create(context, errata->bans);
    return errata->refused.empty() ? code : Worse(code, ExitCode::kFailed);
  }

  ExitCode Create(Context& context, const std::vector<v1::Ban>& bans) const {
    const auto client = context.Connect();
    if (!client.ok()) return context.Fail(client.status());
    ExitCode code = ExitCode::kDone;
    std::vector<std::string> documents;
    for (const v1::Ban& ban : bans) {
      v1::CreateBanRequest request;
      *request.mutable_ban() = ban;
      request.set_dry_run(dry_run_);
      const auto created = (*client)->CreateBan(request, context.long_timeout());
      if (absl::IsAlreadyExists(created.status()) && !errata_.empty()) {
        context.Say(std::string(created.status().message()));
        continue;
      }
      if (!created.ok()) {
        code = Worse(code, context.Fail(created.status()));
        continue;
      }
      documents.push_back(JsonMessage(*created));
      Print(context, *created);
    }
    if (context.format() == Format::kJson) {
      context.io().out << JsonObject().AddRaw("created", JsonArray(documents)).Take() << "\n";
    }
    return code;
  }

  void Print(Context& context, const v1::CreateBanResponse& created) const {
    const v1::Ban& ban = created.ban();
    Table table({{"PROBLEM"}, {"ENVIRONMENT"}, {"BEFORE"}, {"AFTER"}, {"TIME", Align::kRight}});
    for (const v1::BanChange& change : created.changes()) {
      table.Add({ShortProblem(change.problem_text()), change.environment(),
                 absl::StrCat(change.before(), change.pinned() ? " (pinned)" : ""),
                 change.after().empty() ? "none is left" : change.after(),
                 change.ratio() > 0 ? absl::StrFormat("%.2fx", change.ratio()) : "-"});
    }
    if (context.format() == Format::kTable && !table.empty()) {
      context.io().out << table.Render(context.table_width(), context.out_color());
    }
    context.Say(absl::StrCat(dry_run_ ? "would ban " : absl::StrCat(ban.name(), " bans "),
                             ban.candidate(), " (", Where(ban), ") until ", Until(ban), ": ",
                             Count(created.listed_count(), "tuning lists", "tunings list"),
                             " such a candidate, ", created.change_count(), " ",
                             created.change_count() == 1 ? "has" : "have", " another winner, ",
                             created.lost_count(), " of these no candidate that is left"));
    int pins = 0;
    for (const v1::BanChange& change : created.changes()) pins += change.pinned() ? 1 : 0;
    if (pins > 0) {
      context.Say(
          absl::StrCat(Count(pins, "pin has", "pins have"), " no effect while the ban holds"));
    }
    if (created.changes_size() < created.change_count()) {
      context.Say(absl::StrCat("these are the first ", created.changes_size(), " changes"));
    }
  }

  ExitCode List(Context& context) const {
    const auto client = context.Connect();
    if (!client.ok()) return context.Fail(client.status());
    const auto list = (*client)->ListBans();
    if (!list.ok()) return context.Fail(list.status());
    std::ostream& out = context.io().out;
    if (as_errata_) return PrintErrata(context, {list->bans().begin(), list->bans().end()});
    if (context.format() == Format::kJson) {
      out << JsonMessage(*list) << "\n";
      return ExitCode::kDone;
    }
    if (context.format() == Format::kCsv) {
      out << CsvLine({"ban", "candidate", "cudnn", "gpu", "operation", "data_type", "layout",
                      "author", "reason", "created", "expires", "tunings"});
    }
    Table table({{"BAN"},
                 {"CANDIDATES"},
                 {"WHERE"},
                 {"AUTHOR"},
                 {"UNTIL"},
                 {"TUNINGS", Align::kRight},
                 {"REASON"}});
    for (const v1::Ban& ban : list->bans()) {
      const auto name = [](auto value) {
        return static_cast<int>(value) == 0 ? std::string() : std::string(Name(value));
      };
      if (context.format() == Format::kCsv) {
        out << CsvLine({ban.name(), ban.candidate(), ban.cudnn(), ban.gpu(),
                        name(static_cast<Operation>(ban.operation())),
                        name(static_cast<DataType>(ban.data_type())),
                        name(static_cast<TensorLayout>(ban.layout())), ban.author(), ban.reason(),
                        FormatTimestamp(ban.create_time()),
                        ban.has_expire_time() ? FormatTimestamp(ban.expire_time()) : "",
                        absl::StrCat(ban.tuning_count())});
      }
      table.Add({ban.name(), ban.candidate(), Where(ban), ban.author(), Until(ban),
                 absl::StrCat(ban.tuning_count()), ban.reason()});
    }
    if (context.format() == Format::kTable && !table.empty()) {
      out << table.Render(context.table_width(), context.out_color());
    }
    if (list->bans().empty()) context.Say("nothing is banned");
    return ExitCode::kDone;
  }

  static ExitCode PrintErrata(Context& context, const std::vector<v1::Ban>& bans) {
    const ErrataDocument document = WriteErrata(bans);
    context.io().out << document.json << "\n";
    for (const ErrataRemark& remark : document.remarks) {
      context.Say(absl::StrCat(remark.subject, ": ", remark.words));
    }
    for (const ErrataRemark& left : document.left_out) {
      context.SayError(absl::StrCat(left.subject, " is left out: ", left.words));
    }
    return document.left_out.empty() ? ExitCode::kDone : ExitCode::kFailed;
  }

  ExitCode Delete(Context& context) const {
    v1::DeleteBanRequest request;
    const bool is_number = !name_.empty() && std::all_of(name_.begin(), name_.end(), [](char c) {
      return std::isdigit(static_cast<uint8_t>(c));
    });
    request.set_name(is_number ? "bans/" + name_ : name_);
    const auto client = context.Connect();
    if (!client.ok()) return context.Fail(client.status());
    const auto deleted = (*client)->DeleteBan(request, context.long_timeout());
    if (!deleted.ok()) return context.Fail(deleted.status());
    if (context.format() == Format::kJson) {
      context.io().out << JsonObject().Add("deleted", request.name()).Take() << "\n";
    }
    context.Say("deleted " + request.name());
    return ExitCode::kDone;
  }

  CLI::App* list_ = nullptr;
  CLI::App* delete_ = nullptr;
  std::string pattern_, cudnn_, gpu_, operation_, data_type_, layout_;
  std::string reason_, author_, expires_, errata_, name_;
  bool dry_run_ = false;
  bool as_errata_ = false;
};

}  // namespace

std::unique_ptr<Command> NewBanCommand() { return std::make_unique<BanCommand>(); }

}  // namespace convtune::cli
