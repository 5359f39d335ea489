// The verb that decides which nodes count: node.
#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "client/fleet/commands.h"
#include "db/fleet/nodes.h"
#include "db/fleet/releases.h"
#include "proto/base/status_macros.h"

namespace convtune::fleet {
namespace {

cli::output::Fields ChoiceFields(const db::fleet::ServedChoice& choice) {
  return {{"problem", "PROBLEM", choice.problem_text},
          {"environment", "ENVIRONMENT", choice.environment_text},
          {"candidate", "CANDIDATE", choice.candidate},
          {"release", "RELEASE", choice.release}};
}

class NodeCommand final : public FleetCommand {
 public:
  using FleetCommand::FleetCommand;
  void Register(CLI::App& root) override {
    CLI::App* const app = AddVerbGroup(root, "node", "which nodes count; `status` lists them");
    forget_ = AddVerbBelow(app, "forget", "count a node that is gone no more");
    distrust_ = AddVerbBelow(app, "distrust",
                             "pool nothing of what a node measured; lists what rests on it alone",
                             ChoiceFields({}));
    trust_ = AddVerbBelow(app, "trust", "end that");
    for (CLI::App* const verb : {forget_, distrust_, trust_}) {
      verb->add_option("NODE", node_, "its name")->required();
    }
    decision_.Register(*distrust_);
    decision_.RegisterAuthor(*trust_);
  }

  absl::StatusOr<cli::app::ExitCode> Run(cli::app::Context& context) override {
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    if (forget_->parsed()) {
      RETURN_IF_ERROR(db::fleet::ForgetNode(*postgres, node_));
      return PrintOutcome(context, {{"forgotten", node_}}, absl::StrCat("forgot ", node_));
    }
    if (trust_->parsed()) {
      RETURN_IF_ERROR(db::fleet::TrustNode(*postgres, node_, decision_.author));
      return PrintOutcome(context, {{"trusted", node_}},
                          absl::StrCat(node_, " is trusted: what it measured counts again"));
    }
    RETURN_IF_ERROR(db::fleet::DistrustNode(*postgres, node_, decision_.author, decision_.reason));
    ASSIGN_OR_RETURN(const std::vector<db::fleet::ServedChoice> choices,
                     db::fleet::ListChoicesOf(*postgres, node_));
    const auto count = static_cast<int64_t>(choices.size());
    context.PrintJson({{"distrusted", node_},
                       {"choice_count", count},
                       {"choices", cli::output::JsonRows(choices, ChoiceFields)}});
    context.PrintRows(choices, ChoiceFields);
    context.Say(node_, " is distrusted; ", count, " served choices rest on its evidence alone");
    if (count > 0) {
      context.Say(
          "`tune --force` has other nodes measure them, then `release promote`; `release withdraw` "
          "takes them away");
    }
    return cli::app::ExitCode::kDone;
  }

 private:
  CLI::App* forget_ = nullptr;
  CLI::App* distrust_ = nullptr;
  CLI::App* trust_ = nullptr;
  DecisionArgs decision_;
  std::string node_;
};

}  // namespace

std::unique_ptr<cli::app::Command> NewNodeCommand(const PostgresFlags& flags) {
  return std::make_unique<NodeCommand>(flags);
}

}  // namespace convtune::fleet
