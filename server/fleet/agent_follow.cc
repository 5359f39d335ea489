// The part of the agent that takes releases and pins from the fleet.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "db/format/bundle_environment.h"
#include "proto/base/status_macros.h"
#include "proto/model/digest.h"
#include "server/fleet/agent.h"

namespace convtune {
namespace {

// Below the daemon's limit of 4 MiB for a request.
constexpr size_t kMostRequestBytes = 2 << 20;
constexpr int64_t kPage = 200;
constexpr size_t kMostReason = 480;
// What tells the fleet's pins on a node from its operator's.
constexpr char kPinPrefix[] = "fleet pin ";

std::string Shortened(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most;
  // Not within a character.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

}  // namespace

bool TakesCanary(const std::string& node, int64_t release, int permille) {
  return Checksum64(absl::StrCat("convtune.canary\n", release, "\n", node)) % 1000 <
         static_cast<uint64_t>(permille);
}

const Agent::Place* Agent::FindPlace(int64_t id) const {
  for (const auto& [text, place] : places_) {
    if (place.id == id) return &place;
  }
  return nullptr;
}

const Agent::Place* Agent::FindPlace(const std::string& environment_text) const {
  const auto found = places_.find(environment_text);
  return found != places_.end() ? &found->second : nullptr;
}

absl::StatusOr<int64_t> Agent::Send(const v1::ApplyTuningsRequest& request) {
  if (request.tunings_size() == 0) return 0;
  ASSIGN_OR_RETURN(const v1::ApplyTuningsResponse response, fleet_->ApplyTunings(request));
  for (const std::string& why : response.refused()) {
    options_.log(absl::StrCat("the daemon refused a tuning of the fleet: ", why));
  }
  return response.deferred_size();
}

absl::StatusOr<int64_t> Agent::Apply(const std::vector<ReleasedTuning>& tunings) {
  v1::ApplyTuningsRequest empty;
  std::map<int64_t, int> numbers;
  for (const auto& [text, place] : places_) {
    Provenance provenance;
    provenance.node = "fleet";
    const int number = empty.environments_size() + 1;
    numbers[place.id] = number;
    *empty.add_environments() = ToBundleEnvironment(number, place.environment, provenance);
  }
  int64_t deferred = 0;
  size_t bytes = 0;
  v1::ApplyTuningsRequest request = empty;
  for (const ReleasedTuning& tuning : tunings) {
    const auto number = numbers.find(tuning.environment_id);
    v1::BundleTuning proto;
    if (number == numbers.end() || !proto.ParseFromString(tuning.payload)) continue;
    proto.set_environment(number->second);
    bytes += tuning.payload.size();
    if (bytes > kMostRequestBytes) {
      ASSIGN_OR_RETURN(const int64_t waiting, Send(request));
      deferred += waiting;
      request = empty;
      bytes = tuning.payload.size();
    }
    *request.add_tunings() = std::move(proto);
  }
  ASSIGN_OR_RETURN(const int64_t waiting, Send(request));
  return deferred + waiting;
}

absl::Status Agent::Follow() {
  ASSIGN_OR_RETURN(const ReleaseHistory served, ReadServedReleases(*postgres_));
  const Release* const running = served.canary();
  const bool canary =
      running != nullptr && TakesCanary(options_.node, running->number, running->canary_permille);
  const Release* const target = canary ? running : served.promoted();
  if (target == nullptr) return absl::OkStatus();
  const std::vector<int64_t> environments = PlaceIds();
  // After a start, and for environments that are new, everything.
  const bool all = follow_all_ || environments != followed_;
  const int64_t from = all ? 0 : state_.release();
  if (from == target->number) return absl::OkStatus();
  // A tuning of this node that waits would keep its place.
  RETURN_IF_ERROR(Push());
  int64_t deferred = 0;
  RETURN_IF_ERROR(ReadReleaseChanges(*postgres_, environments, from, target->number, kPage,
                                     [&](std::vector<ReleasedTuning> page) -> absl::Status {
                                       ASSIGN_OR_RETURN(const int64_t waiting, Apply(page));
                                       deferred += waiting;
                                       return absl::OkStatus();
                                     }));
  if (deferred > 0) {
    announced_ = true;  // in the next turn, after what waits
    return absl::OkStatus();
  }
  v1::FollowReleaseRequest request;
  request.set_release(target->number);
  request.set_author(Shortened(target->author, 128));
  request.set_reason(
      Shortened(absl::StrCat("fleet release ", target->number, ": ", target->reason), kMostReason));
  RETURN_IF_ERROR(fleet_->FollowRelease(request).status());
  const bool is_new = state_.release() != target->number;
  state_.set_release(target->number);
  followed_ = environments;
  follow_all_ = false;
  if (!is_new) return absl::OkStatus();
  options_.log(absl::StrCat("serves release ", target->number, canary ? " as a canary" : ""));
  return postgres_
      ->Query("UPDATE nodes SET release_number = $2 WHERE node_id = $1",
              PgParams().Int(node_id_).Int(target->number))
      .status();
}

absl::Status Agent::FollowPins() {
  ASSIGN_OR_RETURN(const std::vector<FleetPin> pins, ListFleetPins(*postgres_, PlaceIds()));
  ASSIGN_OR_RETURN(const v1::ListPinsResponse here, daemon_->ListPins({}));
  // By environment name and problem: what the daemon has of the fleet's.
  std::map<std::pair<std::string, std::string>, std::string> kept;
  for (const v1::PinRecord& pin : here.pins()) {
    if (absl::StartsWith(pin.reason(), kPinPrefix)) {
      kept[{pin.environment(), pin.problem_text()}] = pin.reason();
    }
  }
  absl::Status status;
  for (const FleetPin& pin : pins) {
    const Place* const place = FindPlace(pin.environment_id);
    if (place == nullptr) continue;
    const std::string reason = Shortened(
        absl::StrCat(kPinPrefix, pin.pin_id, " by ", pin.author, ": ", pin.reason), kMostReason);
    const auto found = kept.find({place->name, pin.problem_text});
    if (found != kept.end()) {
      const bool same = found->second == reason;
      kept.erase(found);
      if (same) continue;
    }
    v1::PinRequest request;
    request.set_environment(place->name);
    request.mutable_problem()->set_text(pin.problem_text);
    request.set_candidate(pin.candidate);
    request.set_reason(reason);
    if (pin.left.has_value()) {
      request.mutable_ttl()->set_seconds(std::max<int64_t>(1, absl::ToInt64Seconds(*pin.left)));
    }
    const absl::Status pinned = daemon_->Pin(request).status();
    // A node that does not know the problem or the candidate has it pinned once
    // it does.
    if (pinned.ok() || absl::IsNotFound(pinned) || absl::IsFailedPrecondition(pinned)) continue;
    status.Update(pinned);
  }
  for (const auto& [key, reason] : kept) {
    v1::UnpinRequest request;
    request.set_environment(key.first);
    request.mutable_problem()->set_text(key.second);
    const absl::Status unpinned = daemon_->Unpin(request).status();
    if (!absl::IsNotFound(unpinned)) status.Update(unpinned);
  }
  return status;
}

}  // namespace convtune
