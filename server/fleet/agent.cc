#include "server/fleet/agent.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "db/fleet_evidence.h"
#include "db/fleet_migrator.h"
#include "db/fleet_nodes.h"
#include "db/format/bundle_codec.h"
#include "proto/base/status_macros.h"
#include "server/decision/ranking.h"
#include "server/fleet/pooling.h"

namespace convtune {
namespace {

constexpr int kPage = 200;
constexpr int64_t kPoolAtOnce = 50;
constexpr absl::Duration kFirstBackoff = absl::Milliseconds(250);
constexpr absl::Duration kStopPoll = absl::Milliseconds(50);
// While a task runs its end is looked for this often.
constexpr absl::Duration kTaskPoll = absl::Milliseconds(20);

Conditions FromProto(const v1::CardState& card) {
  Conditions conditions;
  conditions.known = card.known();
  conditions.other_processes = card.other_processes();
  conditions.clock_reasons = card.clock_reasons();
  conditions.power_limit_watts = card.power_limit_watts();
  conditions.temperature_celsius = card.temperature_celsius();
  conditions.ecc_errors = card.ecc_errors();
  conditions.mig = card.mig();
  conditions.mps = card.mps();
  conditions.self_check = card.self_check();
  return conditions;
}

// Nothing if a rule is broken, which the daemon itself would not store.
std::optional<FleetDelivery> ToDelivery(const v1::OutboxRow& row) {
  const BundleEnvironmentRow environment = FromBundleEnvironment(row.environment());
  std::vector<BundleRefusal> refusals;
  // Nothing is judged by the node's clock.
  std::optional<Tuning> tuning =
      FromBundleTuning(row.tuning(), environment, absl::InfiniteFuture(), &refusals);
  if (!tuning.has_value()) return std::nullopt;
  FleetDelivery delivery;
  delivery.id = {row.id().epoch(), row.id().sequence()};
  delivery.environment = environment.environment;
  delivery.tuning = *std::move(tuning);
  delivery.tuning.provenance = environment.provenance;
  delivery.tuning.conditions = FromProto(row.card());
  const std::vector<Candidate>& candidates = delivery.tuning.candidates;
  if (!candidates.empty() && candidates.front().ran()) delivery.winner = 0;
  delivery.stock = StockIndex(candidates);
  return delivery;
}

// One that PostgreSQL refuses, which none should be, must not hold up the others
// for ever: it is said and left out.
absl::Status DeliverAll(Postgres& postgres, FleetNames& names, int64_t node_id,
                        const std::vector<FleetDelivery>& deliveries,
                        const std::function<void(const std::string&)>& log) {
  if (deliveries.empty()) return absl::OkStatus();
  const auto is_refusal = [](const absl::Status& status) {
    return absl::IsInvalidArgument(status) || absl::IsInternal(status);
  };
  const absl::Status all = Deliver(postgres, names, node_id, deliveries).status();
  if (!is_refusal(all)) return all;
  for (const FleetDelivery& delivery : deliveries) {
    const absl::Status one = Deliver(postgres, names, node_id, {delivery}).status();
    if (!one.ok() && !is_refusal(one)) return one;
    if (!one.ok()) {
      log(absl::StrCat("not delivered: ", delivery.tuning.key.problem_text, ": ",
                       std::string(one.message())));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Agent>> Agent::Create(Options options) {
  if (options.node.empty() || options.node.size() > 200) {
    return absl::InvalidArgumentError("node: must be a name of 1 to 200 bytes");
  }
  if (options.lease < absl::Seconds(1) || options.lease > absl::Hours(24)) {
    return absl::InvalidArgumentError("lease: must be from 1s to 24h");
  }
  std::unique_ptr<Agent> agent(new Agent(std::move(options)));
  ASSIGN_OR_RETURN(agent->daemon_, Client::Create(agent->options_.daemon));
  ASSIGN_OR_RETURN(agent->fleet_, FleetClient::Create(agent->options_.daemon));
  ASSIGN_OR_RETURN(agent->releases_, ReleaseClient::Create(agent->options_.daemon));
  return agent;
}

void Agent::Run() {
  backoff_ = kFirstBackoff;
  while (!options_.stop()) {
    const absl::Status status = Turn();
    ShowMetrics(!status.ok());
    const std::string error = status.ok() ? "" : std::string(status.message());
    if (error != last_error_) {
      options_.log(error.empty() ? "all is well again" : error);
      last_error_ = error;
    }
    if (status.ok()) {
      backoff_ = kFirstBackoff;
      const auto notified =
          postgres_->WaitForNotification(running_.empty() ? options_.poll : kTaskPoll);
      if (notified.value_or(false)) announced_ = true;
      continue;
    }
    if (postgres_ != nullptr && !postgres_->ok()) postgres_.reset();
    Wait(backoff_);
    backoff_ = std::min(backoff_ * 2, options_.backoff_most);
  }
  GiveTasksBack();
}

void Agent::Wait(absl::Duration time) {
  const absl::Time end = absl::Now() + time;
  while (!options_.stop() && absl::Now() < end) {
    absl::SleepFor(std::min(kStopPoll, end - absl::Now()));
  }
}

absl::Status Agent::Turn() {
  ASSIGN_OR_RETURN(state_, fleet_->GetFleetState());
  if (state_.outbox_depth() == 0) waiting_since_ = absl::InfiniteFuture();
  if (state_.outbox_depth() > 0) waiting_since_ = std::min(waiting_since_, absl::Now());
  RETURN_IF_ERROR(EnsureConnected());
  const bool may_have_delivered = state_.outbox_depth() > 0 || !running_.empty();
  const bool refresh = announced_ || absl::Now() >= next_refresh_;
  if (absl::Now() >= next_refresh_) {
    RETURN_IF_ERROR(ReadPlaces());
    RETURN_IF_ERROR(Heartbeat());
    RETURN_IF_ERROR(Wanted());
    RETURN_IF_ERROR(Upkeep());
    next_refresh_ = absl::Now() + options_.refresh;
  }
  if (state_.outbox_depth() > 0) RETURN_IF_ERROR(Push());
  if (refresh) {
    announced_ = false;
    absl::Status followed = Follow();
    followed.Update(FollowPins());
    if (!followed.ok()) {
      announced_ = true;  // again in the next turn, however late that is
      return followed;
    }
    next_claim_ = absl::InfinitePast();
  }
  RETURN_IF_ERROR(WorkOnTasks());
  // An idle agent asks for nothing but at its refresh.
  int64_t pooled = may_have_delivered || refresh ? kPoolAtOnce : 0;
  while (pooled == kPoolAtOnce && !options_.stop()) {
    ASSIGN_OR_RETURN(pooled, PoolQueued(*postgres_, *names_, kPoolAtOnce, PoolEvidence));
  }
  return absl::OkStatus();
}

absl::Status Agent::EnsureConnected() {
  if (postgres_ != nullptr && postgres_->ok()) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::unique_ptr<Postgres> connected, Postgres::Connect(options_.postgres));
  RETURN_IF_ERROR(CheckFleetSchema(*connected));
  ASSIGN_OR_RETURN(node_id_, RegisterNode(*connected, options_.node));
  RETURN_IF_ERROR(connected->Execute(absl::StrCat("LISTEN ", kFleetChannel)));
  // A fleet that has never heard of this node, or forgot it.
  ASSIGN_OR_RETURN(const bool delivered, HasDelivered(*connected, node_id_));
  if (!delivered) {
    ASSIGN_OR_RETURN(const v1::RequeueOutboxResponse queued, fleet_->RequeueOutbox());
    if (queued.queued_count() > 0) {
      options_.log(
          absl::StrCat(queued.queued_count(), " tunings of this node are new to the fleet"));
    }
    ASSIGN_OR_RETURN(state_, fleet_->GetFleetState());
  }
  postgres_ = std::move(connected);
  names_ = std::make_unique<FleetNames>(postgres_.get());
  announced_ = true;
  next_refresh_ = absl::InfinitePast();
  options_.log(absl::StrCat("connected as ", options_.node));
  return absl::OkStatus();
}

absl::Status Agent::ReadPlaces() {
  ASSIGN_OR_RETURN(const v1::ListEnvironmentsResponse environments, daemon_->ListEnvironments());
  ASSIGN_OR_RETURN(const v1::ListDevicesResponse devices, daemon_->ListDevices());
  std::map<std::string, Place> places;
  for (const v1::Environment& proto : environments.environments()) {
    if (!proto.current()) continue;
    ASSIGN_OR_RETURN(Environment environment, Environment::Parse(proto.text()));
    environment.gpu_model = proto.gpu_model();
    ASSIGN_OR_RETURN(const int64_t id, names_->Environment(environment));
    Place place{id, proto.name(), environment, proto.driver_version(), 0};
    for (const v1::Device& device : devices.devices()) {
      if (device.environment() == proto.name()) ++place.devices;
    }
    places.emplace(proto.text(), std::move(place));
  }
  places_ = std::move(places);
  return absl::OkStatus();
}

std::vector<int64_t> Agent::PlaceIds() const {
  std::vector<int64_t> ids;
  for (const auto& [text, place] : places_) ids.push_back(place.id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

absl::Status Agent::Heartbeat() {
  ASSIGN_OR_RETURN(const v1::ServerInfo info, daemon_->GetServerInfo());
  ASSIGN_OR_RETURN(const v1::ListEnvironmentsResponse environments, daemon_->ListEnvironments());
  ASSIGN_OR_RETURN(const v1::ListDevicesResponse devices, daemon_->ListDevices());
  convtune::Heartbeat heartbeat;
  heartbeat.node_time = options_.clock->Now();
  heartbeat.agent_version = options_.version;
  heartbeat.daemon_version = info.version();
  heartbeat.daemon_start_time = absl::FromUnixSeconds(info.start_time().seconds());
  heartbeat.tuning_count = info.tuning_count();
  heartbeat.lookups = info.lookups();
  heartbeat.hits = info.hits();
  heartbeat.queue_depth = info.queue_depth();
  heartbeat.outbox_depth = state_.outbox_depth();
  heartbeat.outbox_dropped = state_.outbox_dropped();
  heartbeat.outbox_superseded = state_.outbox_superseded();
  heartbeat.outbox_lag = OutboxLag();
  heartbeat.release = state_.release();
  heartbeat.last_error = last_error_;
  for (const v1::Device& device : devices.devices()) {
    for (const v1::Environment& environment : environments.environments()) {
      if (!environment.current() || environment.name() != device.environment()) continue;
      const Place* const place = FindPlace(environment.text());
      if (place == nullptr) continue;
      heartbeat.devices.push_back(
          {device.name(), place->environment,
           Provenance{environment.driver_version(), environment.cuda_version(),
                      environment.gpu_uuid(), options_.node, environment.memory_bytes()},
           static_cast<int>(device.state())});
    }
  }
  return WriteHeartbeat(*postgres_, *names_, node_id_, heartbeat);
}

absl::Status Agent::Wanted() {
  v1::ListWantedRequest request;
  request.set_max_problems(1000);
  const absl::StatusOr<v1::ListWantedResponse> response = releases_->ListWanted(request);
  // A daemon without releases serves programs nothing, and misses nothing.
  if (absl::IsUnimplemented(response.status())) return absl::OkStatus();
  RETURN_IF_ERROR(response.status());
  std::vector<WantedProblem> wanted;
  for (const v1::WantedProblem& proto : response->wanted()) {
    for (const auto& [text, place] : places_) {
      if (place.name != proto.environment()) continue;
      WantedProblem each;
      each.key = {proto.problem_text(), text};
      each.misses = proto.miss_count();
      each.first_seen = absl::FromUnixSeconds(proto.first_seen_time().seconds());
      each.last_seen = absl::FromUnixSeconds(proto.last_seen_time().seconds());
      wanted.push_back(std::move(each));
    }
  }
  return WriteWanted(*postgres_, *names_, node_id_, wanted);
}

absl::StatusOr<bool> Agent::PushPage() {
  v1::ReadOutboxRequest request;
  request.set_max_rows(kPage);
  ASSIGN_OR_RETURN(const v1::ReadOutboxResponse page, fleet_->ReadOutbox(request));
  std::vector<FleetDelivery> deliveries;
  v1::AckOutboxRequest ack;
  std::map<std::string, std::vector<std::string>> delivered;
  for (const v1::OutboxRow& row : page.rows()) {
    *ack.add_ids() = row.id();
    if (std::optional<FleetDelivery> delivery = ToDelivery(row)) {
      delivered[delivery->tuning.key.environment_text].push_back(delivery->tuning.key.problem_text);
      deliveries.push_back(*std::move(delivery));
    } else {
      options_.log(absl::StrCat("not delivered, since it breaks a rule: ", row.tuning().problem()));
    }
  }
  for (const v1::OutboxId& id : page.void_ids()) *ack.add_ids() = id;
  RETURN_IF_ERROR(DeliverAll(*postgres_, *names_, node_id_, deliveries, options_.log));
  if (ack.ids_size() > 0) {
    RETURN_IF_ERROR(fleet_->AckOutbox(ack).status());
    waiting_since_ = absl::InfiniteFuture();
  }
  counts_.delivered += static_cast<int64_t>(deliveries.size());
  RETURN_IF_ERROR(Restore(delivered));
  return page.more();
}

absl::Status Agent::Push() {
  bool more = true;
  while (more && !options_.stop()) {
    ASSIGN_OR_RETURN(more, PushPage());
  }
  return absl::OkStatus();
}

absl::Status Agent::Restore(const std::map<std::string, std::vector<std::string>>& delivered) {
  if (state_.release() == 0) return absl::OkStatus();
  for (const auto& [environment_text, problems] : delivered) {
    const Place* const place = FindPlace(environment_text);
    if (place == nullptr) continue;
    ASSIGN_OR_RETURN(const std::vector<ReleasedTuning> choices,
                     ReadReleaseChoices(*postgres_, place->id, problems, state_.release()));
    // What changed again meanwhile is delivered, and put back, in its turn.
    RETURN_IF_ERROR(Apply(choices).status());
  }
  return absl::OkStatus();
}

}  // namespace convtune
