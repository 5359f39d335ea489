#include <CLI/CLI.hpp>
#include <algorithm>
#include <ostream>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/output/units.h"
#include "client/fleet/commands.h"
#include "db/fleet/nodes.h"
#include "db/fleet/releases.h"
#include "proto/base/status_macros.h"
#include "proto/model/text.h"

namespace convtune::fleet {
namespace {

// "5", and how what the node has differs from it.
std::string ReleaseOf(const db::fleet::NodeStatus& node) {
  std::string text = absl::StrCat(node.last.release);
  if (node.last.release_missing > 0) absl::StrAppend(&text, " -", node.last.release_missing);
  if (node.last.release_extra > 0) absl::StrAppend(&text, " +", node.last.release_extra);
  return text;
}

// A row is for 120 columns. Names of machines differ at their beginning, or at their end.
std::string ShortName(const std::string& name) {
  constexpr size_t kBegin = 17, kEnd = 14;
  if (cli::output::DisplayWidth(name) <= static_cast<int>(kBegin + kEnd + 3)) return name;
  size_t end = name.size() - kEnd;
  while ((static_cast<unsigned char>(name[end]) & 0xC0) == 0x80) ++end;  // inside of a character
  return absl::StrCat(std::string(CutUtf8(name, kBegin)), "...", name.substr(end));
}

std::string ModelsOf(const db::fleet::NodeStatus& node) {
  std::set<std::string> models;
  for (const std::string& device : node.devices) models.insert(device.substr(0, device.find(',')));
  return absl::StrJoin(models, " ");
}

cli::output::Fields NodeFields(const db::fleet::NodeStatus& node) {
  const auto age = [](absl::Duration time, const std::string& shown) {
    return cli::output::Value(absl::ToDoubleSeconds(time)).Shown(shown);
  };
  const absl::Duration offset = absl::AbsDuration(node.clock_offset);
  return {{"name", "NODE", cli::output::Value(node.name).Shown(ShortName)},
          {"state", "STATE",
           cli::output::Value(node.living ? "living" : "silent")
               .Shown(absl::StrCat(node.living ? "living" : "silent",
                                   node.distrust_author.empty() ? "" : ", distrusted"))},
          {"distrust_author", "", node.distrust_author},
          {"distrust_reason", "", node.distrust_reason},
          {"silent_seconds", "SEEN", age(node.silence, cli::output::FormatAge(node.silence))},
          {"release", "RELEASE", cli::output::Value(node.last.release).Shown(ReleaseOf(node))},
          {"release_missing", "", node.last.release_missing},
          {"release_extra", "", node.last.release_extra},
          {"outbox_depth", "OUTBOX", node.last.outbox_depth},
          {"outbox_lag_seconds", "LAG",
           age(node.last.outbox_lag,
               node.last.outbox_depth == 0 ? "-" : cli::output::FormatAge(node.last.outbox_lag))},
          {"outbox_dropped", "DROPPED", node.last.outbox_dropped},
          {"tuning_count", "TUNINGS", node.last.tuning_count},
          {"clock_offset_seconds", "", absl::ToDoubleSeconds(node.clock_offset)},
          {"", "CLOCK",
           offset < absl::Seconds(1)
               ? "ok"
               : absl::StrCat(node.clock_offset < absl::ZeroDuration() ? "-" : "+",
                              cli::output::FormatAge(offset))},
          {"", "VERSION",
           node.last.daemon_version == node.last.agent_version
               ? node.last.agent_version
               : absl::StrCat(node.last.daemon_version, "/", node.last.agent_version)},
          {"agent_version", "", node.last.agent_version},
          {"daemon_version", "", node.last.daemon_version},
          {"devices", "DEVICES", cli::output::Value(node.devices).Shown(ModelsOf(node))},
          {"unapplied_pins", "", node.last.pins.count},
          {"pin_error", "", node.last.pins.error},
          {"unapplied_bans", "", node.last.bans.count},
          {"ban_error", "", node.last.bans.error},
          {"release_error", "", node.last.release_error},
          {"last_error", "", node.last.last_error}};
}

cli::output::Json HeedingJson(const db::fleet::Heeding& heeding) {
  cli::output::Fields fields;
  AddHeeding(heeding, false, &fields);
  return cli::output::JsonRow(fields);
}

class StatusCommand final : public FleetCommand {
 public:
  using FleetCommand::FleetCommand;
  void Register(CLI::App& root) override {
    AddVerb(root, "status", "nodes, lag, versions, releases and the queue", NodeFields({}));
  }

  absl::StatusOr<cli::app::ExitCode> Run(cli::app::Context& context) override {
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    ASSIGN_OR_RETURN(const db::fleet::FleetCountsStatus counts, db::fleet::CountFleet(*postgres));
    ASSIGN_OR_RETURN(const std::vector<db::fleet::NodeStatus> nodes,
                     db::fleet::ListNodes(*postgres));
    ASSIGN_OR_RETURN(const ReleaseHistory served, db::fleet::ReadServedReleases(*postgres));
    ASSIGN_OR_RETURN(const db::fleet::FleetDiff waiting, db::fleet::DiffPooled(*postgres, {}, 1));
    ASSIGN_OR_RETURN(const std::vector<db::fleet::NodeDeviation> deviating,
                     db::fleet::ListDeviating(*postgres));
    const absl::Status whole = db::fleet::CheckServed(*postgres, db::fleet::NewestServed(served));
    if (!whole.ok() && !absl::IsDataLoss(whole)) return whole;
    const int64_t promoted = served.promoted() != nullptr ? served.promoted()->number : 0;
    ASSIGN_OR_RETURN(auto releases, db::fleet::ReadReleaseHeeding(*postgres));
    ASSIGN_OR_RETURN(const auto bans, db::fleet::ReadBanHeeding(*postgres));
    const auto unheeded = std::count_if(bans.begin(), bans.end(), [](const auto& one) {
      return one.second.heeded() < one.second.concerned;
    });
    ASSIGN_OR_RETURN(const bool read_only,
                     postgres->QueryValue<bool>("SELECT pg_is_in_recovery() OR "
                                                "current_setting('transaction_read_only')::bool"));
    db::fleet::FleetRelease canary;
    if (served.canary() != nullptr) {
      ASSIGN_OR_RETURN(canary, db::fleet::ReadFleetRelease(*postgres, served.canary()->number));
    }
    if (read_only) {
      context.io().err << "warning: this PostgreSQL takes no writes; agents can neither deliver "
                          "nor say that they live\n";
    }
    context.PrintJson({{"read_only", read_only},
                       {"promoted", promoted},
                       {"canary", canary.release.number},
                       {"canary_nodes", canary.canary_nodes},
                       {"silent_canary_nodes", canary.silent_canary_nodes},
                       {"waiting_changes", waiting.change_count},
                       {"lesser_evidence_changes", waiting.lesser_count},
                       {"held_back_changes", waiting.held_count},
                       {"deviating", cli::output::JsonRows(deviating, DeviationFields)},
                       {"damaged", std::string(whole.message())},
                       {"environments", counts.environments},
                       {"problems", counts.problems},
                       {"evidence", counts.evidence},
                       {"pooled", counts.pooled},
                       {"waiting_to_pool", counts.waiting_to_pool},
                       {"tasks_queued", counts.tasks_queued},
                       {"tasks_leased", counts.tasks_leased},
                       {"tasks_dead", counts.tasks_dead},
                       {"pins", counts.pins},
                       {"bans", counts.bans},
                       {"unheeded_bans", unheeded},
                       {"promoted_heeding", HeedingJson(releases[promoted])},
                       {"canary_heeding", HeedingJson(releases[canary.release.number])},
                       {"nodes", cli::output::JsonRows(nodes, NodeFields)}});
    context.PrintRows(nodes, NodeFields);
    SayDeviating(context, deviating);
    if (!whole.ok()) context.Say("damaged: ", std::string(whole.message()));
    if (context.format() != cli::app::Format::kTable) return cli::app::ExitCode::kDone;
    std::ostream& out = context.io().out;
    int64_t refusing = 0;
    int64_t without_pin = 0;
    int64_t without_ban = 0;
    int64_t silent = 0;
    for (const db::fleet::NodeStatus& node : nodes) {
      refusing += node.last.release_error.empty() ? 0 : 1;
      without_pin += node.last.pins.count > 0 ? 1 : 0;
      without_ban += node.last.bans.count > 0 ? 1 : 0;
      silent += node.living ? 0 : 1;
      for (const std::string* const error : {&node.last.last_error, &node.last.release_error,
                                             &node.last.bans.error, &node.last.pins.error}) {
        if (error->empty()) continue;
        // The name as the row has it, then the whole name.
        const std::string shown = ShortName(node.name);
        out << "error of " << shown;
        if (shown != node.name) out << " (" << node.name << ')';
        out << ": " << *error << '\n';
      }
    }
    out << nodes.size() << " nodes";
    if (silent > 0) out << ", " << silent << " silent";
    const auto heeded_by = [&releases](int64_t release) {
      const db::fleet::Heeding& of = releases[release];
      return absl::StrCat(", heeded by ", of.heeded(), " of ", of.concerned);
    };
    out << "; fleet release " << promoted;
    if (promoted != 0) out << heeded_by(promoted);
    if (canary.release.number != 0) {
      out << ", canary " << canary.release.number << heeded_by(canary.release.number);
      if (!canary.silent_canary_nodes.empty()) {
        out << ", silent " << absl::StrJoin(canary.silent_canary_nodes, ", ");
      }
    }
    if (refusing > 0) out << ", refused on " << refusing << " nodes";
    out << "; " << waiting.change_count << " changes wait for a promotion";
    if (const std::string left = db::fleet::LeftOut(waiting, {}); !left.empty()) {
      out << ", and " << left;
    }
    out << "; " << counts.pins << " pins";
    if (without_pin > 0) out << ", not applied on " << without_pin << " nodes";
    out << "; " << counts.bans << " bans";
    if (without_ban > 0) out << ", not applied on " << without_ban << " nodes";
    if (unheeded > 0) out << ", " << unheeded << " not heeded by every node";
    out << '\n'
        << counts.evidence << " tunings of " << counts.problems << " problems in "
        << counts.environments << " environments, " << counts.pooled << " pooled, "
        << counts.waiting_to_pool << " to be\n"
        << "queue: " << counts.tasks_queued << " waiting, " << counts.tasks_leased
        << " being tuned, " << counts.tasks_dead << " dead\n";
    return cli::app::ExitCode::kDone;
  }
};

}  // namespace

std::unique_ptr<cli::app::Command> NewStatusCommand(const PostgresFlags& flags) {
  return std::make_unique<StatusCommand>(flags);
}

}  // namespace convtune::fleet
