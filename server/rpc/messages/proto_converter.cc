#include "server/rpc/messages/proto_converter.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/convert/ban_proto.h"
#include "proto/convert/record_codec.h"
#include "proto/convert/terms_proto.h"
#include "proto/model/tuning/conditions.h"
#include "server/lookup/indexed_tuning.h"

namespace convtune::rpc::messages {
namespace {

// The problem's text begins with it.
Operation OperationOf(const TuningKey& key) {
  const std::string_view text = key.problem_text;
  return ParseOperation(text.substr(0, text.find(','))).value_or(Operation::kFwd);
}

// The short name of the key's environment; that of an empty one if the text cannot be read.
std::string EnvironmentName(const TuningKey& key) {
  return Environment::Parse(key.environment_text).value_or(Environment()).Name();
}

}  // namespace

v1::Environment FindEnvironment(const std::vector<v1::Environment>& known,
                                const std::string& text) {
  const auto found = std::find_if(known.begin(), known.end(),
                                  [&](const v1::Environment& one) { return one.text() == text; });
  if (found != known.end()) return *found;
  return ToProto(Environment::Parse(text).value_or(Environment()));
}

namespace {

void AddKey(const TuningKey& key, const v1::Environment& environment, v1::Tuning* out) {
  out->set_id(key.Digest().ToString());
  if (const absl::StatusOr<ConvProblem> problem = ConvProblem::Parse(key.problem_text);
      problem.ok()) {
    *out->mutable_problem() = problem->ToProto();
  }
  out->set_problem_text(key.problem_text);
  *out->mutable_environment() = environment;
}

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
    convtune::Fill(choice.candidate, OperationOf(portfolio.key), served->mutable_candidate());
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

v1::Quarantine ToProto(const QuarantineEntry& entry) {
  v1::Quarantine out;
  out.set_candidate(ToText(entry.candidate));
  out.set_reason(static_cast<v1::QuarantineReason>(entry.reason));
  out.set_message(entry.message);
  *out.mutable_create_time() = ToProto(entry.create_time);
  if (entry.reason == QuarantineReason::kHung) {
    *out.mutable_hang_budget() = ToProto(entry.hang_budget);
  }
  out.set_checker_version(entry.checker_version);
  return out;
}

v1::Tuning ToProto(const Tuning& tuning, const v1::Environment& environment) {
  v1::Tuning out;
  convtune::Fill(tuning, /*with_samples=*/true, &out);
  AddKey(tuning.key, environment, &out);
  const Operation operation = OperationOf(tuning.key);
  for (size_t i = 0; i < tuning.candidates.size(); ++i) {
    FillOutput(tuning.candidates[i], operation, out.mutable_candidates(static_cast<int>(i)));
  }
  if (const std::optional<size_t> stock = StockIndex(tuning.candidates); stock.has_value()) {
    out.mutable_candidates(static_cast<int>(*stock))->set_stock(true);
  }
  out.set_candidate_count(static_cast<int>(tuning.candidates.size()));
  for (std::string& mark : Marks(tuning.conditions)) {
    out.mutable_conditions()->add_marks(std::move(mark));
  }
  // Ranked: the first that ran wins without constraints.
  const auto winner = std::find_if(tuning.candidates.begin(), tuning.candidates.end(),
                                   [](const Candidate& candidate) { return candidate.usable(); });
  if (winner != tuning.candidates.end()) {
    out.set_winner(ToText(winner->id));
  }
  return out;
}

v1::Tuning ToProto(const lookup::IndexedTuning& indexed, const v1::Environment& environment) {
  const lookup::KeptTuning& kept = indexed.tuning;
  Tuning listed;
  static_cast<TuningFacts&>(listed) = kept;
  v1::Tuning out;
  convtune::Fill(listed, /*with_samples=*/false, &out);
  AddKey(kept.key.Whole(), environment, &out);
  out.set_candidate_count(indexed.candidate_count);
  out.set_winner(indexed.Winner());
  return out;
}

v1::PinRecord ToProto(const Pin& pin) {
  v1::PinRecord out;
  out.set_problem_text(pin.key.problem_text);
  out.set_environment(EnvironmentName(pin.key));
  out.set_environment_text(pin.key.environment_text);
  out.set_candidate(ToText(pin.candidate));
  out.set_reason(pin.reason);
  *out.mutable_create_time() = ToProto(pin.create_time);
  if (pin.expire_time.has_value()) {
    *out.mutable_expire_time() = ToProto(*pin.expire_time);
  }
  out.set_fleet_pin(pin.fleet_pin);
  return out;
}

void AddBanned(const Tuning& tuning, const Bans& bans, v1::Tuning* out) {
  for (const Candidate& candidate : tuning.candidates) {
    if (!candidate.usable()) continue;
    if (const Bans::Shared ban = bans.Find(candidate.id)) {
      *out->add_banned() = convtune::ToProto(candidate.id, *ban);
    }
  }
  if (out->banned_size() > 0) out->set_winner(lookup::KeepAll(tuning, bans).Winner());
}

v1::ChoiceChange ToProto(const release::ChoiceChange& change) {
  v1::ChoiceChange out;
  out.set_problem_text(change.after.key.problem_text);
  out.set_environment(EnvironmentName(change.after.key));
  *out.mutable_before() = PortfolioToProto(change.before);
  *out.mutable_after() = PortfolioToProto(change.after);
  return out;
}

}  // namespace convtune::rpc::messages
