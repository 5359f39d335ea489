#include "server/rpc/messages/release_converter.h"

#include <string>

#include "server/rpc/messages/proto_converter.h"

namespace convtune::rpc::messages {
namespace {

v1::Portfolio PortfolioToProto(const Portfolio& portfolio) {
  constexpr struct {
    uint32_t bit;
    v1::ChoiceRole role;
  } kRoles[] = {{kRoleBest, v1::CHOICE_ROLE_BEST},
                {kRoleNeutral, v1::CHOICE_ROLE_NEUTRAL},
                {kRoleNoWorkspace, v1::CHOICE_ROLE_NO_WORKSPACE}};
  v1::Portfolio out;
  for (const Choice& choice : portfolio.choices) {
    if ((choice.roles & kServedRoles) == 0) continue;
    v1::ServedChoice* served = out.add_choices();
    *served->mutable_candidate() = ToProto(choice.candidate, OperationOf(portfolio.key));
    for (const auto& [bit, role] : kRoles) {
      if ((choice.roles & bit) != 0) served->add_roles(role);
    }
  }
  if (!portfolio.choices.empty()) {
    out.set_evidence(static_cast<v1::Evidence>(portfolio.evidence));
    out.set_release(portfolio.release);
  }
  return out;
}

}  // namespace

v1::Release ToProto(const Release& release) {
  v1::Release out;
  out.set_number(release.number);
  out.set_state(static_cast<v1::ReleaseState>(release.state));
  out.set_canary_permille(release.canary_permille);
  out.set_restores(release.restores);
  out.set_author(release.author);
  out.set_reason(release.reason);
  *out.mutable_create_time() = ToProto(release.create_time);
  out.set_end_author(release.end_author);
  out.set_end_reason(release.end_reason);
  if (release.end_time.has_value()) *out.mutable_end_time() = ToProto(*release.end_time);
  return out;
}

absl::Status Fill(const release::ReleaseList& list, const PageArgs& page,
                  v1::ListReleasesResponse* out) {
  out->set_promoted(list.promoted);
  out->set_canary(list.canary);
  out->set_waiting_changes(list.waiting_changes);
  out->set_auto_promote_held(list.auto_promote_held);
  out->set_publish_evidence(static_cast<v1::Evidence>(list.floor));
  out->set_below_evidence_count(list.below_floor_count);
  const std::vector<Release>& rows = list.releases;
  return AddPage(
      page, rows.size(), [&rows](size_t i) { return std::to_string(rows[i].number); },
      [&rows](size_t i) { return ToProto(rows[i]); }, out->mutable_releases(),
      out->mutable_next_page_token());
}

v1::DiffReleasesResponse ToProto(const release::ReleaseDiff& diff) {
  v1::DiffReleasesResponse out;
  out.set_from(diff.from);
  out.set_to(diff.to);
  out.set_change_count(diff.change_count);
  const auto make = [&diff](size_t i) {
    const release::ChoiceChange& change = diff.changes[i];
    v1::ChoiceChange row;
    row.set_problem_text(change.after.key.problem_text);
    row.set_environment(EnvironmentName(change.after.key));
    *row.mutable_before() = PortfolioToProto(change.before);
    *row.mutable_after() = PortfolioToProto(change.after);
    return row;
  };
  const size_t added = AddRows(diff.changes.size(), make, out.mutable_changes());
  if (added > 0 && (added < diff.changes.size() || diff.more)) {
    out.set_next_page_token(KeyToken(diff.changes[added - 1].after.key));
  }
  return out;
}

absl::Status Fill(const std::vector<WantedProblem>& wanted, const PageArgs& page,
                  const std::function<bool(const std::string&)>& has_device,
                  v1::ListWantedResponse* out) {
  out->set_wanted_count(static_cast<int64_t>(wanted.size()));
  const auto make = [&](size_t i) {
    const WantedProblem& problem = wanted[i];
    v1::WantedProblem row;
    row.set_problem_text(problem.key.problem_text);
    row.set_environment(EnvironmentName(problem.key));
    row.set_environment_text(problem.key.environment_text);
    row.set_can_be_tuned(has_device(problem.key.environment_text));
    row.set_miss_count(problem.misses);
    *row.mutable_first_seen_time() = ToProto(problem.first_seen);
    *row.mutable_last_seen_time() = ToProto(problem.last_seen);
    row.set_attempt_count(problem.attempts);
    row.set_last_error(problem.last_error);
    return row;
  };
  return AddPage(
      page, wanted.size(),
      [&wanted](size_t i) {
        return wanted[i].key.environment_text + " " + wanted[i].key.problem_text;
      },
      make, out->mutable_wanted(), out->mutable_next_page_token());
}

}  // namespace convtune::rpc::messages
