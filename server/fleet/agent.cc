#include "server/fleet/agent.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "db/bundle/bundle_codec.h"
#include "db/bundle/bundle_environment.h"
#include "db/fleet/evidence.h"
#include "db/fleet/fleet_migrator.h"
#include "db/fleet/nodes.h"
#include "db/fleet/retention.h"
#include "db/fleet/upgrades.h"
#include "proto/base/status_macros.h"
#include "proto/convert/record_codec.h"
#include "proto/model/tuning/digest.h"
#include "server/decision/ranking.h"
#include "server/fleet/pooling.h"

namespace convtune::fleet {
namespace {

constexpr int kPage = 200;
constexpr int64_t kPoolAtOnce = 50;
constexpr absl::Duration kFirstBackoff = absl::Milliseconds(250);
constexpr absl::Duration kStopPoll = absl::Milliseconds(50);
// While a task runs its end is looked for this often.
constexpr absl::Duration kTaskPoll = absl::Milliseconds(20);

// Nothing if a rule is broken, which the daemon itself would not store.
std::optional<db::fleet::FleetDelivery> ToDelivery(const v1::OutboxRow& row) {
  const db::BundleEnvironmentRow environment = db::FromBundleEnvironment(row.environment());
  std::vector<db::BundleRefusal> refusals;
  // Nothing is judged by the node's clock.
  std::optional<Tuning> tuning =
      db::FromBundleTuning(row.tuning(), environment, absl::InfiniteFuture(), &refusals);
  if (!tuning.has_value()) return std::nullopt;
  db::fleet::FleetDelivery delivery;
  delivery.id = {row.id().epoch(), row.id().sequence()};
  delivery.environment = environment.environment;
  delivery.tuning = *std::move(tuning);
  delivery.tuning.provenance = environment.provenance;
  const std::vector<Candidate>& candidates = delivery.tuning.candidates;
  if (!candidates.empty() && candidates.front().usable()) delivery.winner = 0;
  delivery.stock = StockIndex(candidates);
  return delivery;
}

// One that PostgreSQL refuses, which none should be, must not hold up the others
// for ever: it is said and left out.
absl::Status DeliverAll(db::fleet::Postgres& postgres, db::fleet::FleetNames& names,
                        int64_t node_id, const std::vector<db::fleet::FleetDelivery>& deliveries,
                        const std::function<void(const std::string&)>& log) {
  if (deliveries.empty()) return absl::OkStatus();
  const auto is_refusal = [](const absl::Status& status) {
    return absl::IsInvalidArgument(status) || absl::IsInternal(status);
  };
  const absl::Status all = db::fleet::Deliver(postgres, names, node_id, deliveries).status();
  if (!is_refusal(all)) return all;
  for (const db::fleet::FleetDelivery& delivery : deliveries) {
    const absl::Status one = db::fleet::Deliver(postgres, names, node_id, {delivery}).status();
    if (!one.ok() && !is_refusal(one)) return one;
    if (!one.ok()) {
      log(absl::StrCat("not delivered: ", delivery.tuning.key.problem_text, ": ",
                       std::string(one.message())));
    }
  }
  return absl::OkStatus();
}
// Below the daemon's limit of 4 MiB for a request.
constexpr size_t kMostRequestBytes = 2 << 20;
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
constexpr int kRenewals = 3;  // within a lease
constexpr absl::Duration kUpkeepEvery = absl::Minutes(10);

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
    ASSIGN_OR_RETURN(pooled, db::fleet::PoolQueued(*postgres_, *names_, kPoolAtOnce, PoolEvidence));
  }
  return absl::OkStatus();
}

absl::Status Agent::EnsureConnected() {
  if (postgres_ != nullptr && postgres_->ok()) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::unique_ptr<db::fleet::Postgres> connected,
                   db::fleet::Postgres::Connect(options_.postgres));
  RETURN_IF_ERROR(db::fleet::CheckFleetSchema(*connected));
  ASSIGN_OR_RETURN(node_id_, db::fleet::RegisterNode(*connected, options_.node));
  RETURN_IF_ERROR(connected->Execute(absl::StrCat("LISTEN ", db::fleet::kFleetChannel)));
  // A fleet that has never heard of this node, or forgot it.
  ASSIGN_OR_RETURN(const bool delivered, db::fleet::HasDelivered(*connected, node_id_));
  if (!delivered) {
    ASSIGN_OR_RETURN(const v1::RequeueOutboxResponse queued, fleet_->RequeueOutbox());
    if (queued.queued_count() > 0) {
      options_.log(
          absl::StrCat(queued.queued_count(), " tunings of this node are new to the fleet"));
    }
    ASSIGN_OR_RETURN(state_, fleet_->GetFleetState());
  }
  postgres_ = std::move(connected);
  names_ = std::make_unique<db::fleet::FleetNames>(postgres_.get());
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
    Place place{id, proto.name(), environment, proto.provenance().driver_version(), 0};
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
  convtune::db::fleet::Heartbeat heartbeat;
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
      heartbeat.devices.push_back({device.name(), place->environment,
                                   convtune::FromProto(environment.provenance()),
                                   static_cast<int>(device.state())});
    }
  }
  return db::fleet::WriteHeartbeat(*postgres_, *names_, node_id_, heartbeat);
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
  std::vector<db::fleet::FleetDelivery> deliveries;
  v1::AckOutboxRequest ack;
  std::map<std::string, std::vector<std::string>> delivered;
  for (const v1::OutboxRow& row : page.rows()) {
    *ack.add_ids() = row.id();
    if (std::optional<db::fleet::FleetDelivery> delivery = ToDelivery(row)) {
      delivered[delivery->tuning.key.environment_text].push_back(delivery->tuning.key.problem_text);
      deliveries.push_back(*std::move(delivery));
    } else {
      options_.log(
          absl::StrCat("not delivered, since it breaks a rule: ", row.tuning().problem_text()));
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
    ASSIGN_OR_RETURN(
        const std::vector<db::fleet::ReleasedTuning> choices,
        db::fleet::ReadReleaseChoices(*postgres_, place->id, problems, state_.release()));
    // What changed again meanwhile is delivered, and put back, in its turn.
    RETURN_IF_ERROR(Apply(choices).status());
  }
  return absl::OkStatus();
}

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

absl::StatusOr<int64_t> Agent::Apply(const std::vector<db::fleet::ReleasedTuning>& tunings) {
  v1::ApplyTuningsRequest empty;
  std::map<int64_t, int> numbers;
  for (const auto& [text, place] : places_) {
    Provenance provenance;
    provenance.node = "fleet";
    const int number = empty.environments_size() + 1;
    numbers[place.id] = number;
    *empty.add_environments() = db::ToBundleEnvironment(number, place.environment, provenance);
  }
  int64_t deferred = 0;
  size_t bytes = 0;
  v1::ApplyTuningsRequest request = empty;
  for (const db::fleet::ReleasedTuning& tuning : tunings) {
    const auto number = numbers.find(tuning.environment_id);
    v1::Tuning proto;
    if (number == numbers.end() || !proto.ParseFromString(tuning.payload)) continue;
    proto.set_environment_number(number->second);
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
  ASSIGN_OR_RETURN(const ReleaseHistory served, db::fleet::ReadServedReleases(*postgres_));
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
  RETURN_IF_ERROR(db::fleet::ReadReleaseChanges(
      *postgres_, environments, from, target->number, kPage,
      [&](std::vector<db::fleet::ReleasedTuning> page) -> absl::Status {
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
              db::fleet::PgParams().Int(node_id_).Int(target->number))
      .status();
}

absl::Status Agent::FollowPins() {
  ASSIGN_OR_RETURN(const std::vector<db::fleet::FleetPin> pins,
                   db::fleet::ListFleetPins(*postgres_, PlaceIds()));
  ASSIGN_OR_RETURN(const v1::ListPinsResponse here, daemon_->ListPins({}));
  // By environment name and problem: what the daemon has of the fleet's.
  std::map<std::pair<std::string, std::string>, std::string> kept;
  for (const v1::PinRecord& pin : here.pins()) {
    if (absl::StartsWith(pin.reason(), kPinPrefix)) {
      kept[{pin.environment(), pin.problem_text()}] = pin.reason();
    }
  }
  absl::Status status;
  for (const db::fleet::FleetPin& pin : pins) {
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

absl::Status Agent::WorkOnTasks() {
  for (size_t i = 0; i < running_.size();) {
    bool ended = false;
    RETURN_IF_ERROR(TendTask(&running_[i], &ended));
    if (ended) {
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      next_claim_ = absl::InfinitePast();
    } else {
      ++i;
    }
  }
  if (!options_.tune || absl::Now() < next_claim_) return absl::OkStatus();
  // Where nothing is announced: work of a node that did not come back.
  next_claim_ = absl::Now() + options_.refresh;
  return ClaimMore();
}

absl::Status Agent::TendTask(RunningTask* running, bool* ended) {
  v1::GetTuningJobRequest request;
  request.set_name(running->job);
  const absl::StatusOr<v1::TuningJob> job = daemon_->GetTuningJob(request);
  if (absl::IsNotFound(job.status())) {
    // Another daemon than the one that was asked: it was started again.
    *ended = true;
    return db::fleet::ReturnTask(*postgres_, running->task).status();
  }
  RETURN_IF_ERROR(job.status());
  switch (job->state()) {
    case v1::JOB_STATE_SUCCEEDED:
      // The fleet has the result before the task is done.
      RETURN_IF_ERROR(Push());
      RETURN_IF_ERROR(db::fleet::CompleteTask(*postgres_, running->task).status());
      *ended = true;
      ++counts_.tasks_done;
      return absl::OkStatus();
    case v1::JOB_STATE_FAILED:
      *ended = true;
      ++counts_.tasks_failed;
      return db::fleet::FailTask(*postgres_, running->task,
                                 job->failures_size() > 0 ? job->failures(0) : "no candidate ran")
          .status();
    case v1::JOB_STATE_CANCELLED:
      *ended = true;
      return db::fleet::ReturnTask(*postgres_, running->task).status();
    default:
      break;
  }
  if (absl::Now() < running->renew) return absl::OkStatus();
  running->renew = absl::Now() + options_.lease / kRenewals;
  ASSIGN_OR_RETURN(const bool still_ours,
                   db::fleet::RenewTask(*postgres_, running->task, options_.lease));
  if (still_ours) return absl::OkStatus();
  *ended = true;
  v1::CancelTuningJobRequest cancel;
  cancel.set_name(running->job);
  return daemon_->CancelTuningJob(cancel).status();
}

absl::Status Agent::ClaimMore() {
  std::vector<int64_t> environments;
  int64_t room = 0;
  for (const auto& entry : places_) {
    const Place& place = entry.second;
    const auto busy = std::count_if(running_.begin(), running_.end(), [&](const auto& running) {
      return running.task.environment_id == place.id;
    });
    if (busy >= place.devices) continue;
    environments.push_back(place.id);
    room += place.devices - busy;
  }
  if (environments.empty()) return absl::OkStatus();
  // What this node's own callers want goes first.
  ASSIGN_OR_RETURN(const v1::ServerInfo info, daemon_->GetServerInfo());
  if (info.queue_depth() > 0 || info.waiting_callers() > 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<db::fleet::FleetTask> tasks,
                   db::fleet::ClaimTasks(*postgres_, node_id_, environments, room, options_.lease));
  counts_.tasks_claimed += static_cast<int64_t>(tasks.size());
  for (const db::fleet::FleetTask& task : tasks) RETURN_IF_ERROR(StartTask(task));
  return absl::OkStatus();
}

absl::Status Agent::StartTask(const db::fleet::FleetTask& task) {
  const Place* const place = FindPlace(task.environment_id);
  if (place == nullptr) return db::fleet::ReturnTask(*postgres_, task).status();
  v1::CreateTuningJobRequest request;
  request.set_environment(place->name);
  request.add_problems()->set_text(task.problem_text);
  request.set_priority(v1::PRIORITY_BACKGROUND);
  request.set_force(task.kind == db::fleet::BatchKind::kVerify);
  request.set_request_id(absl::StrCat("fleet-", task.task_id, "-", task.token));
  const int64_t millis = absl::ToInt64Milliseconds(task.budget);
  auto* const budget = request.mutable_options()->mutable_time_budget();
  budget->set_seconds(millis / 1000);
  budget->set_nanos(static_cast<int32_t>(millis % 1000 * 1'000'000));
  const absl::StatusOr<v1::TuningJob> job = daemon_->CreateTuningJob(request);
  if (!job.ok()) {
    if (absl::IsUnavailable(job.status())) return db::fleet::ReturnTask(*postgres_, task).status();
    return db::fleet::FailTask(*postgres_, task, std::string(job.status().message())).status();
  }
  running_.push_back({task, job->name(), absl::Now() + options_.lease / kRenewals});
  return absl::OkStatus();
}

void Agent::GiveTasksBack() {
  for (const RunningTask& running : running_) {
    v1::CancelTuningJobRequest cancel;
    cancel.set_name(running.job);
    daemon_->CancelTuningJob(cancel).status().IgnoreError();
    // Without a word its lease runs out.
    if (postgres_ != nullptr && postgres_->ok()) {
      db::fleet::ReturnTask(*postgres_, running.task).status().IgnoreError();
    }
  }
  running_.clear();
}

absl::Status Agent::Upkeep() {
  std::string here;
  for (const auto& [text, place] : places_)
    absl::StrAppend(&here, text, " ", place.driver_version, "\n");
  const bool changed = here != verified_;
  if (!changed && absl::Now() < next_upkeep_) return absl::OkStatus();
  if (options_.verify_upgrades) RETURN_IF_ERROR(VerifyUpgrades());
  verified_ = here;
  next_upkeep_ = absl::Now() + kUpkeepEvery;
  ASSIGN_OR_RETURN(const std::optional<db::fleet::Thinned> thinned,
                   db::fleet::ThinFleetDaily(*postgres_, options_.keep));
  if (thinned.has_value()) {
    options_.log(absl::StrCat("thinned: ", thinned->evidence, " superseded tunings, ",
                              thinned->tasks, " ended tasks, ", thinned->payloads,
                              " pooled tunings that nothing refers to"));
  }
  return absl::OkStatus();
}

absl::Status Agent::VerifyUpgrades() {
  for (const auto& [text, place] : places_) {
    ASSIGN_OR_RETURN(
        const int64_t queued,
        db::fleet::QueueVerification(*postgres_, *names_, place.environment, place.driver_version));
    if (queued > 0) {
      options_.log(absl::StrCat(queued, " problems of ", place.name, " are to be verified"));
    }
  }
  return absl::OkStatus();
}

absl::Duration Agent::OutboxLag() const {
  return std::max(absl::Now() - waiting_since_, absl::ZeroDuration());
}

void Agent::ShowMetrics(bool failed) {
  if (failed) ++counts_.failed_turns;
  counts_.connected = postgres_ != nullptr && postgres_->ok();
  if (!failed) counts_.last_exchange = absl::Now();
  counts_.outbox_depth = state_.outbox_depth();
  counts_.outbox_dropped = state_.outbox_dropped();
  counts_.outbox_lag = OutboxLag();
  counts_.tasks_running = static_cast<int64_t>(running_.size());
  counts_.release = state_.release();
  const MutexLock lock(metrics_mutex_);
  metrics_ = counts_;
}

metrics::AgentMetrics Agent::Metrics() const {
  const MutexLock lock(metrics_mutex_);
  return metrics_;
}

}  // namespace convtune::fleet
