#include "client/cli/commands/ban/ban_output.h"

#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/units.h"
#include "client/cli/output/value.h"
#include "proto/model/enums.h"

namespace convtune::cli::commands::ban {
namespace {

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

}  // namespace

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

void PrintBans(app::Context& context, const std::vector<v1::Ban>& bans, TuningCounts counts) {
  context.PrintRows(bans, [counts](const v1::Ban& ban) { return BanFields(ban, counts); });
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

}  // namespace convtune::cli::commands::ban
