#include "client/fleet/agent.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "db/bundle/bundle_codec.h"
#include "db/fleet/bans.h"
#include "db/fleet/evidence.h"
#include "db/fleet/fleet_migrator.h"
#include "proto/base/status_macros.h"
#include "proto/convert/ban_proto.h"
#include "proto/convert/record_codec.h"
#include "proto/model/environment.h"
#include "proto/model/text.h"
#include "proto/monitoring/log.h"

namespace convtune::fleet {
namespace {

constexpr int kPage = 200;  // rows of the outbox, or choices of a release, at a time
// The pause behind a turn that failed doubles from the first to the second.
constexpr absl::Duration kFirstBackoff = absl::Milliseconds(250);
constexpr absl::Duration kBackoffMost = absl::Seconds(30);
constexpr absl::Duration kOutboxPoll = absl::Milliseconds(250);
constexpr absl::Duration kStopPoll = absl::Milliseconds(50);
// While a task runs its end is looked for this often.
constexpr absl::Duration kTaskPoll = absl::Milliseconds(20);
constexpr int kRenewals = 3;  // within a lease
constexpr absl::Duration kReconnectSpread = absl::Seconds(5);
constexpr absl::Duration kUpkeepEvery = absl::Minutes(10);
constexpr absl::Duration kCompareEvery = absl::Hours(1);
// Below the daemon's limit of 4 MiB for a request.
constexpr size_t kMostRequestBytes = 2 << 20;
constexpr size_t kMostReason = 480;
// A daemon looks through all its tunings for a ban. What takes longer it finishes by itself,
// and the next turn finds it.
constexpr absl::Duration kBanTimeout = absl::Seconds(8);
// A daemon refuses a ban that would expire sooner than a second from when it comes.
constexpr absl::Duration kShortestLeft = absl::Seconds(2);

// Delivers these rows. One that breaks a rule, which an earlier daemon with a fault may have
// stored, or that PostgreSQL refuses, is left out and told to `refuse`, so that it does not hold up
// the others for ever.
absl::Status DeliverAll(
    db::postgres::Connection& postgres, db::fleet::FleetNames& names, int64_t node_id,
    const std::vector<v1::OutboxRow>& rows,
    const std::function<void(const std::string&, const absl::Status&)>& refuse) {
  if (rows.empty()) return absl::OkStatus();
  const auto is_refusal = [](const absl::Status& status) {
    return absl::IsInvalidArgument(status) || absl::IsInternal(status);
  };
  absl::Status all = db::fleet::Deliver(postgres, names, node_id, rows).status();
  if (!is_refusal(all)) return all;
  for (const v1::OutboxRow& row : rows) {
    absl::Status one = db::fleet::Deliver(postgres, names, node_id, {row}).status();
    if (!one.ok() && !is_refusal(one)) return one;
    if (!one.ok()) refuse(row.tuning().problem_text(), one);
  }
  return absl::OkStatus();
}

// At random, each agent for itself.
absl::Duration Uniform(absl::Duration least, absl::Duration most) {
  static std::mt19937_64 random{std::random_device()()};
  return least + (most - least) * std::uniform_real_distribution<double>(0, 1)(random);
}

// Whether the fleet has that ban of it, to the word: the numbers of a fleet that was restored
// mean something else.
bool IsAmong(const Ban& kept, const std::vector<db::fleet::FleetBan>& bans) {
  return std::any_of(bans.begin(), bans.end(), [&kept](const db::fleet::FleetBan& one) {
    if (one.ban.fleet_ban != kept.fleet_ban) return false;
    // While a ban is refused, the daemon keeps the rule that it had under this number.
    return !one.error.empty() ||
           (one.ban.HasRuleOf(kept) && one.ban.author == kept.author &&
            one.ban.reason == kept.reason && one.left.has_value() == kept.expire_time.has_value());
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Agent>> Agent::Create(Options options) {
  if (const std::string rule = CheckNodeName(options.node); !rule.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("node: ", rule));
  }
  std::unique_ptr<Agent> agent(new Agent(std::move(options)));
  ASSIGN_OR_RETURN(agent->daemon_, client::Client::Create(agent->options_.daemon));
  agent->ShowMetrics();
  return agent;
}

bool Agent::ReloadIfAsked() {
  if (!options_.reload || !options_.reload()) return false;
  absl::StatusOr<std::unique_ptr<client::Client>> daemon = client::Client::Create(options_.daemon);
  absl::Status status = daemon.status();
  if (daemon.ok()) daemon_ = *std::move(daemon);
  status.Update(options_.read_conninfo().status());  // the next connection has it
  if (status.ok()) {
    log::Info("SIGHUP: the TLS files and --postgres-file are read anew");
  } else {
    log::Error("SIGHUP: what cannot be read stays as it was: $0", std::string(status.message()));
  }
  // libpq reads its own certificates where it connects.
  postgres_.reset();
  return true;
}

void Agent::Run() {
  backoff_ = kFirstBackoff;
  while (!options_.stop()) {
    ReloadIfAsked();
    const bool was_connected = postgres_ != nullptr;
    const absl::Status status = Turn();
    if (!status.ok()) ++counts_.failed_turns;
    if (status.ok()) last_exchange_ = options_.clock->Now();
    ShowMetrics();
    const std::string error = status.ok() ? Trouble() : std::string(status.message());
    if (error != heartbeat_.last_error) {
      error.empty() ? log::Info("all is well again") : log::Warn("$0", error);
      heartbeat_.last_error = error;
      next_refresh_ = SteadyTime::InfinitePast();  // `status` has it at once
    }
    if (status.ok()) {
      backoff_ = kFirstBackoff;
      const auto notified =
          postgres_->WaitForNotification(running_.empty() ? kOutboxPoll : kTaskPoll);
      if (notified.value_or(false)) announced_ = true;
      continue;
    }
    // Whether it works, and leads to the fleet that the node registered with.
    const bool is_good =
        postgres_ != nullptr && !absl::IsAborted(names_->CheckFleet()) && postgres_->ok();
    const bool lost = postgres_ != nullptr ? !is_good : was_connected;
    if (lost) postgres_.reset();
    // Where one server ends all agents lose it at the same moment.
    const absl::Duration pause =
        lost ? Uniform(absl::ZeroDuration(), kReconnectSpread) : Uniform(backoff_ / 2, backoff_);
    if (lost) log::Info("connects again in $0", absl::FormatDuration(pause));
    Wait(pause);
    backoff_ = std::min(backoff_ * 2, kBackoffMost);
  }
  GiveTasksBack();
}

std::string Agent::Trouble() const {
  std::vector<std::string> all;
  if (!state_.node().empty() && state_.node() != options_.node) {
    all.push_back(absl::StrCat(
        "the daemon's --node is ", state_.node(), " and this agent's is ", options_.node,
        ": give both one name, or the agent the --address of ", options_.node, "'s daemon"));
  }
  if (!state_.refused_agent().empty()) {
    all.push_back(absl::StrCat("the agent of ", state_.refused_agent(),
                               " calls this node's daemon, too, and is refused"));
  }
  if (!went_back_.empty()) all.push_back(went_back_);
  if (!publication_error_.empty()) {
    all.push_back(absl::StrCat("the snapshot is not up to date: ", publication_error_));
  }
  if (state_.outbox_refused() > 0) {
    all.push_back(absl::StrCat(state_.outbox_refused(), " tunings were refused, the last of ",
                               state_.last_refused()));
  }
  return absl::StrJoin(all, "; ");
}

void Agent::Wait(absl::Duration time) {
  const SteadyTime end = SteadyTime::Now() + time;
  while (!options_.stop() && !ReloadIfAsked() && SteadyTime::Now() < end) {
    absl::SleepFor(std::min(kStopPoll, end - SteadyTime::Now()));
  }
}

absl::Status Agent::Turn() {
  RETURN_IF_ERROR(ReadState());
  if (state_.outbox_depth() == 0) waiting_since_ = SteadyTime::InfiniteFuture();
  if (state_.outbox_depth() > 0) waiting_since_ = std::min(waiting_since_, SteadyTime::Now());
  // From here on the turn may wait for PostgreSQL.
  ShowMetrics();
  RETURN_IF_ERROR(EnsureConnected());
  const bool refresh = announced_ || SteadyTime::Now() >= next_refresh_;
  if (SteadyTime::Now() >= next_refresh_) {
    RETURN_IF_ERROR(Heartbeat());
    RETURN_IF_ERROR(Wanted());
    RETURN_IF_ERROR(Upkeep());
    next_refresh_ = SteadyTime::Now() + options_.refresh;
  }
  if (state_.outbox_depth() > 0) RETURN_IF_ERROR(Push());
  if (refresh) {
    announced_ = false;
    absl::Status followed = FollowBans();
    if (followed.ok()) followed = Follow();
    followed.Update(FollowPins());
    followed.Update(Heed());
    if (followed.ok()) followed = Compare();
    if (!followed.ok()) {
      announced_ = true;  // again in the next turn, however late that is
      return followed;
    }
    next_claim_ = SteadyTime::InfinitePast();
  } else if (pending_) {
    RETURN_IF_ERROR(Heed());
  }
  return WorkOnTasks();
}

absl::Status Agent::EnsureConnected() {
  if (postgres_ != nullptr && postgres_->ok()) return absl::OkStatus();
  // The password may have been exchanged. A file that cannot be read leaves it as it was, and is
  // named where the login fails.
  const absl::StatusOr<std::string> conninfo = options_.read_conninfo();
  if (conninfo.ok()) options_.postgres.conninfo = *conninfo;
  auto opened = db::postgres::Connection::Connect(options_.postgres);
  if (!opened.ok() && !conninfo.ok()) {
    return absl::Status(opened.status().code(),
                        absl::StrCat(std::string(opened.status().message()), "; ",
                                     std::string(conninfo.status().message())));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<db::postgres::Connection> connected, std::move(opened));
  RETURN_IF_ERROR(db::fleet::CheckFleetSchema(*connected));
  auto names = std::make_unique<db::fleet::FleetNames>(connected.get());
  RETURN_IF_ERROR(names->CheckFleet());
  // Tasks of another fleet are nobody's here, though their numbers come again.
  if (names->fleet_id() != fleet_id_) GiveTasksBack();
  fleet_id_ = names->fleet_id();
  ASSIGN_OR_RETURN(node_id_, db::fleet::RegisterNode(*connected, options_.node));
  ASSIGN_OR_RETURN(heartbeat_.release, db::fleet::ReadHeededRelease(*connected, node_id_));
  RETURN_IF_ERROR(connected->Execute(absl::StrCat("LISTEN ", db::fleet::kFleetChannel)));
  // Another than the one that was followed: of a fleet that was lost, or restored
  // from before it.
  ASSIGN_OR_RETURN(const absl::Time made, db::fleet::ReadReleaseTime(*connected, state_.release()));
  if (made != followed_time_) follow_all_ = true;
  const bool known = made == followed_time_ || followed_time_ == absl::InfinitePast();
  // Once: until the fleet has a release, every connection finds it lost.
  const std::string lost = absl::StrCat(fleet_id_, " ", state_.release());
  const bool release_lost =
      state_.release() > 0 && (made == absl::InfinitePast() || !known) && lost != requeued_;
  RETURN_IF_ERROR(DeliverWhatWasLost(*connected, release_lost));
  if (release_lost) requeued_ = lost;
  postgres_ = std::move(connected);
  names_ = std::move(names);
  // Numbers of bans may mean others now.
  heartbeat_.heeded_bans.clear();
  taken_bans_.clear();
  announced_ = true;
  next_refresh_ = SteadyTime::InfinitePast();
  log::Info("connected as $0", options_.node);
  return absl::OkStatus();
}

absl::Status Agent::DeliverWhatWasLost(db::postgres::Connection& postgres, bool release_lost) {
  int64_t acknowledged = state_.last_sequence();
  if (state_.outbox_depth() > 0) {
    v1::ReadOutboxRequest request;
    request.set_max_rows(1);
    ASSIGN_OR_RETURN(const v1::ReadOutboxResponse first,
                     daemon_->Call<v1::ReadOutboxResponse>(request));
    if (first.rows_size() > 0) acknowledged = first.rows(0).id().sequence() - 1;
  }
  ASSIGN_OR_RETURN(const std::optional<int64_t> ever,
                   db::fleet::LastDelivered(postgres, node_id_, 0));
  ASSIGN_OR_RETURN(const std::optional<int64_t> delivered,
                   db::fleet::LastDelivered(postgres, node_id_, state_.acknowledged_epoch()));
  const bool lost = !delivered.has_value() || *delivered < acknowledged;
  if (!lost && !release_lost) return absl::OkStatus();
  v1::RequeueOutboxRequest again;
  // A node that never delivered anything has nothing to bring back to a fleet that
  // knows its release.
  again.set_include_fleet(release_lost || (!ever.has_value() && acknowledged > 0));
  ASSIGN_OR_RETURN(const v1::RequeueOutboxResponse queued,
                   daemon_->Call<v1::RequeueOutboxResponse>(again));
  if (queued.queued_count() > 0) {
    log::Info("$0 tunings of this node are new to the fleet", queued.queued_count());
  }
  return ReadState();
}

absl::Status Agent::ReadState() {
  v1::GetFleetStateRequest request;
  request.set_agent(options_.node);
  // What PostgreSQL says before the login may be in another encoding than UTF-8.
  std::string trouble = heartbeat_.last_error.substr(0, kMostReason);
  std::replace_if(
      trouble.begin(), trouble.end(), [](unsigned char c) { return c >= 0x80; }, '?');
  request.set_trouble(trouble);
  ASSIGN_OR_RETURN(state_, daemon_->Call<v1::FleetState>(request));
  return absl::OkStatus();
}

absl::Status Agent::ReadPlaces() {
  ASSIGN_OR_RETURN(const v1::ListEnvironmentsResponse environments,
                   daemon_->CallPages<v1::ListEnvironmentsResponse>(v1::ListEnvironmentsRequest()));
  ASSIGN_OR_RETURN(const v1::ListDevicesResponse devices,
                   daemon_->Call<v1::ListDevicesResponse>(v1::ListDevicesRequest()));
  std::map<std::string, Place> places;
  std::vector<Environment> known;
  for (const v1::Environment& proto : environments.environments()) {
    if (!proto.current()) continue;
    ASSIGN_OR_RETURN(Environment environment, Environment::Parse(proto.text()));
    // The fleet is one of cards: it neither asks nor gives a simulated GPU anything.
    if (environment.simulated()) continue;
    environment.gpu_model = proto.gpu_model();
    Place place{environment, proto.provenance().driver_version(), {}};
    for (const v1::Device& device : devices.devices()) {
      const bool has_it =
          device.environment() == proto.name() || device.environment() == proto.text();
      if (has_it) place.devices.push_back(device.name());
    }
    places.emplace(environment.ToText(), std::move(place));
    known.push_back(std::move(environment));
  }
  RETURN_IF_ERROR(names_->AddEnvironments(known));
  places_ = std::move(places);
  return absl::OkStatus();
}

absl::Status Agent::Heartbeat() {
  RETURN_IF_ERROR(ReadPlaces());
  ASSIGN_OR_RETURN(const v1::ServerInfo info,
                   daemon_->Call<v1::ServerInfo>(v1::GetServerInfoRequest()));
  db::fleet::Heartbeat& heartbeat = heartbeat_;
  heartbeat.node_time = options_.clock->Now();
  heartbeat.agent_version = CONVTUNE_VERSION;
  heartbeat.daemon_version = info.version();
  heartbeat.daemon_start_time = absl::FromUnixSeconds(info.start_time().seconds());
  heartbeat.tuning_count = info.tuning_count();
  heartbeat.lookups = info.lookups();
  heartbeat.hits = info.hits();
  heartbeat.outbox_depth = state_.outbox_depth();
  heartbeat.outbox_dropped = state_.outbox_dropped();
  heartbeat.outbox_lag = std::max(SteadyTime::Now() - waiting_since_, absl::ZeroDuration());
  heartbeat.tunes = options_.tune;
  heartbeat.devices.clear();
  for (const auto& [text, place] : places_) {
    for (const std::string& device : place.devices) {
      heartbeat.devices.push_back({device, text, place.driver_version});
    }
  }
  absl::Status written = db::fleet::WriteHeartbeat(*postgres_, *names_, node_id_, heartbeat);
  if (absl::IsAborted(written)) postgres_.reset();  // the node registers again
  return written;
}

absl::Status Agent::Wanted() {
  v1::ListWantedRequest request;
  request.set_max_problems(1000);
  ASSIGN_OR_RETURN(const v1::ListWantedResponse response,
                   daemon_->CallPages<v1::ListWantedResponse>(request, request.max_problems()));
  std::vector<WantedProblem> wanted;
  for (const v1::WantedProblem& proto : response.wanted()) {
    for (const auto& [text, place] : places_) {
      // Several environments may have one name; an earlier daemon says nothing else.
      const bool here = proto.environment_text().empty()
                            ? place.environment.Name() == proto.environment()
                            : text == proto.environment_text();
      if (!here) continue;
      WantedProblem each;
      each.key = {proto.problem_text(), text};
      each.misses = proto.miss_count();
      wanted.push_back(std::move(each));
    }
  }
  return WriteWanted(*postgres_, *names_, node_id_, wanted);
}

absl::Status Agent::Push() {
  for (bool more = true; more && !options_.stop();) {
    v1::ReadOutboxRequest request;
    request.set_max_rows(kPage);
    ASSIGN_OR_RETURN(const v1::ReadOutboxResponse page,
                     daemon_->Call<v1::ReadOutboxResponse>(request));
    std::vector<v1::OutboxRow> rows;
    v1::AckOutboxRequest ack;
    std::map<std::string, std::vector<std::string>> delivered;
    for (const v1::OutboxRow& row : page.rows()) {
      *ack.add_ids() = row.id();
      if (IsSimulated(row.environment().gpu_model())) continue;
      delivered[row.environment().text()].push_back(row.tuning().problem_text());
      rows.push_back(row);
    }
    for (const v1::OutboxId& id : page.void_ids()) *ack.add_ids() = id;
    RETURN_IF_ERROR(DeliverAll(*postgres_, *names_, node_id_, rows,
                               [&ack](const std::string& problem, const absl::Status& why) {
                                 ack.add_refused(
                                     absl::StrCat(problem, ": ", std::string(why.message())));
                                 log::Warn("not delivered: $0", *ack.refused().rbegin());
                               }));
    if (ack.ids_size() > 0) {
      RETURN_IF_ERROR(daemon_->Call<v1::AckOutboxResponse>(ack).status());
      waiting_since_ = SteadyTime::InfiniteFuture();
    }
    counts_.delivered += std::ssize(rows) - ack.refused_size();
    RETURN_IF_ERROR(Restore(delivered));
    more = page.more();
  }
  return absl::OkStatus();
}

absl::Status Agent::Restore(const std::map<std::string, std::vector<std::string>>& delivered) {
  if (state_.release() == 0) return absl::OkStatus();
  for (const auto& [environment, problems] : delivered) {
    if (!places_.contains(environment)) continue;
    const absl::StatusOr<std::vector<db::fleet::ReleasedTuning>> choices =
        db::fleet::ReadReleaseChoices(*postgres_, checked_, environment, problems,
                                      state_.release());
    if (absl::IsDataLoss(choices.status())) {
      // The next Follow reads the whole release, and refuses it while it is not what was decided.
      follow_all_ = true;
      continue;
    }
    RETURN_IF_ERROR(choices.status());
    // A tuning that changed again meanwhile is delivered, and put back, in its turn.
    RETURN_IF_ERROR(Apply(*choices).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Agent::Send(const v1::ApplyTuningsRequest& request) {
  if (request.tunings_size() == 0) return 0;
  ASSIGN_OR_RETURN(const v1::ApplyTuningsResponse response,
                   daemon_->Call<v1::ApplyTuningsResponse>(request));
  for (const std::string& why : response.refused()) {
    log::Warn("the daemon refused a tuning of the fleet: $0", why);
  }
  return response.deferred_size();
}

absl::StatusOr<v1::Tuning> Agent::ReadTuning(const std::string& environment_text,
                                             const std::string& problem_text) {
  v1::GetTuningRequest request;
  request.set_environment(environment_text);
  request.mutable_problem()->set_text(problem_text);
  return daemon_->Call<v1::Tuning>(request);
}

absl::StatusOr<std::string> Agent::WhyVoid(const db::fleet::FleetPin& pin) {
  const absl::StatusOr<v1::Tuning> here = ReadTuning(pin.environment_text, pin.problem_text);
  if (absl::IsNotFound(here.status())) return "the problem has no tuning here";
  RETURN_IF_ERROR(here.status());
  for (const v1::BannedCandidate& banned : here->banned()) {
    if (banned.candidate() != pin.candidate) continue;
    return absl::StrCat("candidate: ", pin.candidate, " is banned by ", banned.ban(), ": ",
                        banned.reason());
  }
  const bool listed =
      std::any_of(here->candidates().begin(), here->candidates().end(),
                  [&pin](const v1::Candidate& one) { return one.text() == pin.candidate; });
  return listed ? "" : absl::StrCat("candidate: ", pin.candidate, " is not in the tuning any more");
}

absl::Status Agent::Withdraw(const db::fleet::ReleasedTuning& withdrawn) {
  const absl::StatusOr<v1::Tuning> here =
      ReadTuning(withdrawn.environment_text, withdrawn.problem_text);
  if (absl::IsNotFound(here.status())) return absl::OkStatus();
  RETURN_IF_ERROR(here.status());
  // A tuning that the node measured is its own. A daemon that knows only_from_fleet looks
  // at it again: another tuning may have been committed meanwhile.
  if (here->origin() != v1::ORIGIN_FLEET) return absl::OkStatus();
  v1::DeleteTuningRequest gone;
  gone.set_environment(withdrawn.environment_text);
  gone.add_problems()->set_text(withdrawn.problem_text);
  gone.set_only_from_fleet(true);
  const absl::Status deleted = daemon_->Call<v1::DeleteTuningResponse>(gone).status();
  return absl::IsNotFound(deleted) ? absl::OkStatus() : deleted;
}

absl::StatusOr<int64_t> Agent::Apply(const std::vector<db::fleet::ReleasedTuning>& tunings) {
  v1::ApplyTuningsRequest empty;
  Provenance provenance;
  provenance.node = "fleet";
  int number = 0;
  for (const auto& [text, place] : places_) {
    *empty.add_environments() =
        db::bundle::ToBundleEnvironment(++number, place.environment, provenance);
  }
  int64_t deferred = 0;
  size_t bytes = 0;
  v1::ApplyTuningsRequest request = empty;
  for (const db::fleet::ReleasedTuning& tuning : tunings) {
    const auto place = places_.find(tuning.environment_text);
    if (place == places_.end()) continue;
    if (tuning.payload.empty()) {
      RETURN_IF_ERROR(Withdraw(tuning));
      continue;
    }
    v1::Tuning proto;
    if (!proto.ParseFromString(tuning.payload)) continue;
    proto.set_environment_number(static_cast<int>(std::distance(places_.begin(), place)) + 1);
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
  const std::string refused = std::exchange(heartbeat_.release_error, "");
  ASSIGN_OR_RETURN(const ReleaseHistory served, db::fleet::ReadServedReleases(*postgres_));
  const Release* const running = served.canary();
  bool canary = false;
  if (running != nullptr) {
    ASSIGN_OR_RETURN(const db::fleet::FleetRelease drawn,
                     db::fleet::ReadFleetRelease(*postgres_, running->number));
    canary = std::count(drawn.canary_nodes.begin(), drawn.canary_nodes.end(), options_.node) > 0;
  }
  Release target;  // its number is 0 where the node should serve nothing of the fleet's
  if (canary) {
    target = *running;
  } else if (served.promoted() != nullptr) {
    target = *served.promoted();
  } else {
    // The node may serve the fleet's first canary, which was rolled back or drawn anew. What it
    // has of a fleet that was lost stays.
    target_.reset();
    const auto left = db::fleet::ReadFleetRelease(*postgres_, state_.release());
    if (absl::IsNotFound(left.status())) return absl::OkStatus();
    RETURN_IF_ERROR(left.status());
    const Release& release = left->release;
    const bool followed =
        followed_time_ == absl::InfinitePast() || followed_time_ == release.create_time;
    if (!followed) return absl::OkStatus();
    const bool ended = !release.end_author.empty();
    target.author = ended ? release.end_author : release.author;
    target.reason =
        absl::StrCat("canary ", release.number,
                     " is served here no more: ", ended ? release.end_reason : release.reason);
    target.create_time = absl::InfinitePast();
  }
  target_ = target.number;
  std::vector<std::string> environments;
  for (const auto& [text, place] : places_) environments.push_back(text);
  // After a start, and for environments that are new, everything.
  const bool all = follow_all_ || environments != followed_;
  const int64_t from = all && target.number > 0 ? 0 : state_.release();
  if (from == target.number && !ban_ended_) return absl::OkStatus();
  // A tuning of this node that waits would keep its place.
  RETURN_IF_ERROR(Push());
  int64_t deferred = 0;
  absl::Status applied;
  const absl::Status read = db::fleet::ReadReleaseChanges(
      *postgres_, *names_, checked_, environments, from, target.number, kPage,
      [&](const std::vector<db::fleet::ReleasedTuning>& page) {
        const absl::StatusOr<int64_t> waiting = Apply(page);
        deferred += waiting.value_or(0);
        return applied = waiting.status();
      });
  if (absl::IsDataLoss(read) && applied.ok()) {
    heartbeat_.release_error = std::string(read.message());
    if (heartbeat_.release_error != refused) log::Error("refused: $0", heartbeat_.release_error);
    return absl::OkStatus();  // what is served stays
  }
  RETURN_IF_ERROR(read);
  if (deferred > 0) {
    announced_ = true;  // in the next turn, after what waits
    return absl::OkStatus();
  }
  std::string went_back;
  if (state_.release() > 0) {
    ASSIGN_OR_RETURN(const absl::Time made,
                     db::fleet::ReadReleaseTime(*postgres_, state_.release()));
    const bool is_gone = made == absl::InfinitePast();
    if (!is_gone && state_.release() == followed_release_ &&
        followed_time_ != absl::InfinitePast() && made != followed_time_) {
      went_back = absl::StrCat("release ", state_.release(),
                               " of this PostgreSQL is another one than the node served: it serves "
                               "release ",
                               target.number, " of this one now; was an older backup restored?");
    } else if (is_gone && target.number < state_.release()) {
      went_back = absl::StrCat("this PostgreSQL does not know release ", state_.release(),
                               ", which the node served: it went back to release ", target.number,
                               "; is this an older primary, or an older backup?");
    }
  }
  v1::FollowReleaseRequest request;
  request.set_release(target.number);
  request.set_author(std::string(CutUtf8(target.author, 128)));
  request.set_reason(std::string(
      CutUtf8(absl::StrCat("fleet release ", target.number, ": ", target.reason), kMostReason)));
  RETURN_IF_ERROR(daemon_->Call<v1::FollowReleaseResponse>(request).status());
  ban_ended_ = false;
  const bool is_new = state_.release() != target.number || !went_back.empty();
  followed_release_ = target.number;
  followed_time_ = target.create_time;
  next_compare_ = SteadyTime::InfinitePast();
  state_.set_release(target.number);
  followed_ = environments;
  follow_all_ = false;
  if (!is_new) return absl::OkStatus();
  refetch_ = {};
  log::Info("serves fleet release $0$1", target.number, canary ? " as a canary" : "");
  went_back_ = std::move(went_back);
  if (!went_back_.empty()) ++counts_.went_back;
  return absl::OkStatus();
}

absl::Status Agent::Heed() {
  ASSIGN_OR_RETURN(const v1::Publication published,
                   daemon_->Call<v1::Publication>(v1::GetPublicationRequest()));
  publication_error_ = published.error();
  pending_ = published.pending();
  int64_t release = state_.release();
  std::vector<int64_t> bans = taken_bans_;
  if (pending_ || !publication_error_.empty()) {
    // Programs still have what was heeded before.
    release = heartbeat_.release;
    std::erase_if(bans, [&before = heartbeat_.heeded_bans](int64_t ban) {
      return std::find(before.begin(), before.end(), ban) == before.end();
    });
  }
  if (release == heartbeat_.release && bans == heartbeat_.heeded_bans) return absl::OkStatus();
  heartbeat_.release = release;
  heartbeat_.heeded_bans = std::move(bans);
  return Heartbeat();
}

bool Refetch::Decide(int64_t missing) {
  const bool again = missing > 0 && !done_;
  done_ = missing > 0;
  return again;
}

absl::Status Agent::Compare() {
  if (SteadyTime::Now() < next_compare_) return absl::OkStatus();
  next_compare_ = SteadyTime::Now() + Uniform(kCompareEvery / 2, kCompareEvery);
  heartbeat_.release_missing = 0;
  heartbeat_.release_extra = 0;
  for (const auto& [text, place] : places_) {
    ASSIGN_OR_RETURN(std::set<std::string> released,
                     db::fleet::ReadReleaseProblems(*postgres_, text, state_.release()));
    v1::ListTuningsRequest request;
    request.set_environment(text);
    request.set_page_size(1000);
    do {
      ASSIGN_OR_RETURN(const v1::ListTuningsResponse page,
                       daemon_->Call<v1::ListTuningsResponse>(request));
      for (const v1::Tuning& tuning : page.tunings()) {
        const bool wanted = released.erase(tuning.problem_text()) > 0;
        if (!wanted && tuning.origin() == v1::ORIGIN_FLEET) ++heartbeat_.release_extra;
      }
      request.set_page_token(page.next_page_token());
    } while (!request.page_token().empty() && !options_.stop());
    heartbeat_.release_missing += static_cast<int64_t>(released.size());
  }
  if (!refetch_.Decide(heartbeat_.release_missing)) return absl::OkStatus();
  log::Warn("the daemon lacks $0 problems of fleet release $1: it gets the release again",
            heartbeat_.release_missing, state_.release());
  follow_all_ = true;
  announced_ = true;
  return absl::OkStatus();
}

absl::Status Agent::FollowPins() {
  ASSIGN_OR_RETURN(const std::vector<db::fleet::FleetPin> pins,
                   db::fleet::ListFleetPins(*postgres_, options_.trusted));
  ASSIGN_OR_RETURN(const v1::ListPinsResponse here,
                   daemon_->CallPages<v1::ListPinsResponse>(v1::ListPinsRequest()));
  // By environment and problem: what the daemon has of the fleet's. An earlier daemon says the
  // environment's name alone.
  std::map<std::pair<std::string, std::string>, const v1::PinRecord*> kept;
  for (const v1::PinRecord& pin : here.pins()) {
    const bool has_text = !pin.environment_text().empty();
    if (pin.fleet_pin() == 0) continue;
    kept[{has_text ? pin.environment_text() : pin.environment(), pin.problem_text()}] = &pin;
  }
  absl::Status status;
  const auto say_end = [&](const v1::PinRecord& ended) {
    const absl::Status why = db::fleet::CheckDecisionsHold(*postgres_, "pin", {ended.fleet_pin()});
    const std::string& environment = ended.environment_text();
    const bool is_elsewhere = !environment.empty() && !places_.contains(environment);
    log::Warn("fleet pin $0 of $1 to $2 ends here: $3", ended.fleet_pin(), ended.problem_text(),
              ended.candidate(),
              !why.ok()      ? why.message()
              : is_elsewhere ? "no device of this node has its environment"
                             : "the fleet's pin of this number is another one");
  };
  heartbeat_.pins = {};
  for (const db::fleet::FleetPin& pin : pins) {
    const std::string name = absl::StrCat("pin ", pin.pin_id, ": ");
    if (!pin.error.empty()) {
      // The row may name another problem now. The daemon keeps the pin that it has of this number.
      std::erase_if(kept,
                    [&pin](const auto& one) { return one.second->fleet_pin() == pin.pin_id; });
      heartbeat_.pins.Add(name + pin.error);
      ++heartbeat_.pins.refused;
      continue;
    }
    const auto place = places_.find(pin.environment_text);
    if (place == places_.end()) continue;
    const std::string reason(CutUtf8(
        absl::StrCat("fleet pin ", pin.pin_id, " by ", pin.author, ": ", pin.reason), kMostReason));
    auto found = kept.find({pin.environment_text, pin.problem_text});
    const std::string name_alone = place->second.environment.Name();
    if (found == kept.end()) found = kept.find({name_alone, pin.problem_text});
    if (found != kept.end()) {
      // The numbers of a fleet that was restored mean something else.
      const v1::PinRecord& held = *found->second;
      const bool same = held.fleet_pin() == pin.pin_id && held.candidate() == pin.candidate &&
                        held.reason() == reason;
      if (same) {
        // A tuning that cannot be read keeps no other pin from being made or ended.
        const absl::StatusOr<std::string> why = WhyVoid(pin);
        status.Update(why.status());
        if (why.ok() && !why->empty()) heartbeat_.pins.Add(name + *why);
        kept.erase(found);
        continue;
      }
    }
    v1::PinRequest request;
    request.set_environment(pin.environment_text);
    request.mutable_problem()->set_text(pin.problem_text);
    request.set_candidate(pin.candidate);
    request.set_reason(reason);
    request.set_fleet_pin(pin.pin_id);
    if (pin.left.has_value()) {
      request.mutable_ttl()->set_seconds(std::max<int64_t>(1, absl::ToInt64Seconds(*pin.left)));
    }
    const absl::Status pinned = daemon_->Call<v1::PinRecord>(request).status();
    // A node that does not know the problem or the candidate has it pinned once
    // it does. One that cannot take the pin at all goes on without it.
    const bool refused = absl::IsNotFound(pinned) || absl::IsFailedPrecondition(pinned) ||
                         absl::IsInvalidArgument(pinned);
    if (!refused && found != kept.end()) {
      if (pinned.ok()) say_end(*found->second);
      kept.erase(found);  // the pin that it was to replace is the fleet's no more
    }
    if (pinned.ok()) continue;
    if (!refused) {
      status.Update(pinned);
      continue;
    }
    heartbeat_.pins.Add(absl::StrCat(name, std::string(pinned.message())));
  }
  for (const auto& [key, pin] : kept) {
    v1::UnpinRequest request;
    request.set_environment(key.first);
    request.mutable_problem()->set_text(key.second);
    request.set_fleet_pin(pin->fleet_pin());
    const absl::Status unpinned = daemon_->Call<v1::UnpinResponse>(request).status();
    if (!absl::IsNotFound(unpinned)) status.Update(unpinned);
    if (unpinned.ok()) say_end(*pin);
  }
  return status;
}

absl::Status Agent::FollowBans() {
  ASSIGN_OR_RETURN(const std::vector<db::fleet::FleetBan> bans,
                   db::fleet::ListFleetBans(*postgres_, options_.trusted));
  ASSIGN_OR_RETURN(const v1::ListBansResponse here,
                   daemon_->Call<v1::ListBansResponse>(v1::ListBansRequest()));
  absl::Status status;
  std::vector<Ban> kept;
  std::set<int64_t> gone = std::exchange(held_bans_, {});
  int shipped = 0;
  for (const v1::Ban& proto : here.bans()) {
    if (options_.stop()) return status;
    std::vector<Violation> violations;
    Ban ban = BanFromProto(proto, "ban", &violations);
    const bool holds = ban.fleet_ban == 0 || IsAmong(ban, bans);
    if (!holds) {
      ban_ended_ = true;
      v1::DeleteBanRequest request;
      request.set_name(proto.name());
      request.set_fleet_ban(ban.fleet_ban);
      const absl::Status deleted =
          daemon_->Call<v1::DeleteBanResponse>(request, kBanTimeout).status();
      if (!absl::IsNotFound(deleted)) status.Update(deleted);
      if (deleted.ok()) {
        const absl::Status why = db::fleet::CheckDecisionsHold(*postgres_, "ban", {ban.fleet_ban});
        log::Warn("$0 ends here: $1", ban.NameAndReason(),
                  why.ok() ? "the fleet's ban of this number is another one" : why.message());
      }
    } else {
      if (ban.fleet_ban != 0) held_bans_.insert(ban.fleet_ban);
      if (proto.shipped()) ++shipped;
      gone.erase(ban.fleet_ban);
      // One that this program cannot read is another rule here.
      if (violations.empty()) kept.push_back(std::move(ban));
    }
  }
  // What expired, the daemon ended by itself, or it was started with --no-errata.
  if (!gone.empty() || shipped < std::exchange(shipped_bans_, shipped)) ban_ended_ = true;
  heartbeat_.bans = {};
  std::vector<int64_t> taken;
  for (const db::fleet::FleetBan& one : bans) {
    // What was taken before still is.
    if (options_.stop()) return status;
    if (!one.error.empty()) {
      heartbeat_.bans.Add(absl::StrCat(one.ban.Name(), ": ", one.error));
      ++heartbeat_.bans.refused;
      continue;
    }
    // A ban of this daemon's own with that rule does as well, for as long as it is there.
    const bool has_rule = std::any_of(kept.begin(), kept.end(),
                                      [&one](const Ban& ban) { return ban.HasRuleOf(one.ban); });
    if (has_rule) taken.push_back(one.ban.fleet_ban);
    if (has_rule) continue;
    v1::CreateBanRequest request;
    *request.mutable_ban() = ToProto(one.ban);
    if (one.left.has_value()) {
      *request.mutable_ban()->mutable_expire_time() =
          ToProto(options_.clock->Now() + std::max(*one.left, kShortestLeft));
    }
    request.set_max_changes(1);
    const absl::Status made = daemon_->Call<v1::CreateBanResponse>(request, kBanTimeout).status();
    if (made.ok()) held_bans_.insert(one.ban.fleet_ban);
    if (made.ok() || absl::IsAlreadyExists(made)) {
      taken.push_back(one.ban.fleet_ban);
      continue;
    }
    if (absl::IsUnavailable(made) || absl::IsDeadlineExceeded(made)) {
      status.Update(made);
    } else {
      heartbeat_.bans.Add(absl::StrCat(one.ban.Name(), ": ", std::string(made.message())));
    }
  }
  taken_bans_ = std::move(taken);
  return status;
}

absl::Status Agent::WorkOnTasks() {
  for (auto running = running_.begin(); running != running_.end();) {
    ASSIGN_OR_RETURN(const bool ended, TendTask(&*running));
    if (ended) next_claim_ = SteadyTime::InfinitePast();
    running = ended ? running_.erase(running) : running + 1;
  }
  if (!options_.tune || SteadyTime::Now() < next_claim_) return absl::OkStatus();
  // Where nothing is announced: work of a node that did not come back.
  next_claim_ = SteadyTime::Now() + options_.refresh;
  return ClaimMore();
}

absl::StatusOr<bool> Agent::TendTask(RunningTask* running) {
  v1::GetTuningJobRequest request;
  request.set_name(running->job);
  const absl::StatusOr<v1::TuningJob> job = daemon_->Call<v1::TuningJob>(request);
  // The job is not found at another daemon than the one that was asked: it was started again.
  const bool lost = absl::IsNotFound(job.status());
  if (lost || (job.ok() && job->state() == v1::JOB_STATE_CANCELLED)) {
    RETURN_IF_ERROR(db::fleet::ReturnTask(*postgres_, running->task).status());
    return true;
  }
  RETURN_IF_ERROR(job.status());
  if (job->state() == v1::JOB_STATE_SUCCEEDED) {
    // The fleet has the result before the task is done.
    RETURN_IF_ERROR(Push());
    RETURN_IF_ERROR(db::fleet::CompleteTask(*postgres_, running->task).status());
    ++counts_.tasks_done;
    return true;
  }
  if (job->state() == v1::JOB_STATE_FAILED) {
    ++counts_.tasks_failed;
    RETURN_IF_ERROR(db::fleet::FailTask(
                        *postgres_, running->task,
                        job->failures_size() > 0 ? job->failures(0).reason() : "no candidate ran")
                        .status());
    return true;
  }
  if (SteadyTime::Now() < running->renew) return false;
  running->renew = SteadyTime::Now() + options_.lease / kRenewals;
  ASSIGN_OR_RETURN(const bool still_ours,
                   db::fleet::RenewTask(*postgres_, running->task, options_.lease));
  if (still_ours) return false;
  v1::CancelTuningJobRequest cancel;
  cancel.set_name(running->job);
  RETURN_IF_ERROR(daemon_->Call<v1::TuningJob>(cancel).status());
  return true;
}

absl::Status Agent::ClaimMore() {
  std::map<std::string, int64_t> idle;  // devices, by environment text
  for (const auto& [text, place] : places_) {
    int64_t devices = std::ssize(place.devices);
    for (const RunningTask& running : running_) {
      if (running.task.environment_text == text) --devices;
    }
    if (devices > 0) idle[text] = devices;
  }
  if (idle.empty()) return absl::OkStatus();
  // This node's own callers go first.
  ASSIGN_OR_RETURN(const v1::ServerInfo info,
                   daemon_->Call<v1::ServerInfo>(v1::GetServerInfoRequest()));
  if (info.queue_depth() > 0 || info.waiting_callers() > 0) return absl::OkStatus();
  for (const auto& [environment, devices] : idle) {
    ASSIGN_OR_RETURN(
        const std::vector<db::fleet::FleetTask> tasks,
        db::fleet::ClaimTasks(*postgres_, *names_, node_id_, environment, devices, options_.lease));
    counts_.tasks_claimed += static_cast<int64_t>(tasks.size());
    absl::Status started;
    for (const db::fleet::FleetTask& task : tasks) {
      // A daemon that has no time for one task is not asked to take the others: their leases run.
      if (started.ok()) {
        started = StartTask(task);
      } else {
        RETURN_IF_ERROR(db::fleet::ReturnTask(*postgres_, task).status());
      }
    }
    RETURN_IF_ERROR(started);
  }
  return absl::OkStatus();
}

absl::Status Agent::StartTask(const db::fleet::FleetTask& task) {
  v1::CreateTuningJobRequest request;
  request.set_environment(task.environment_text);
  request.add_problems()->set_text(task.problem_text);
  request.set_priority(v1::PRIORITY_BACKGROUND);
  request.set_force(task.force);
  request.set_request_id(absl::StrCat("fleet-", absl::Hex(Checksum64(task.fleet)), "-",
                                      task.task_id, "-", task.token));
  *request.mutable_options()->mutable_time_budget() = ToProto(task.budget);
  const absl::StatusOr<v1::TuningJob> job = daemon_->Call<v1::TuningJob>(request);
  if (!job.ok()) {
    const absl::Status& why = job.status();
    // A daemon that is gone, slow or full says nothing about the problem.
    if (absl::IsUnavailable(why) || absl::IsDeadlineExceeded(why) ||
        absl::IsResourceExhausted(why)) {
      RETURN_IF_ERROR(db::fleet::ReturnTask(*postgres_, task).status());
      return why;
    }
    return db::fleet::FailTask(*postgres_, task, std::string(why.message())).status();
  }
  running_.push_back({task, job->name(), SteadyTime::Now() + options_.lease / kRenewals});
  return absl::OkStatus();
}

void Agent::GiveTasksBack() {
  for (const RunningTask& running : running_) {
    v1::CancelTuningJobRequest cancel;
    cancel.set_name(running.job);
    daemon_->Call<v1::TuningJob>(cancel).status().IgnoreError();
    // Without a word its lease runs out.
    if (postgres_ != nullptr && postgres_->ok()) {
      db::fleet::ReturnTask(*postgres_, running.task).status().IgnoreError();
    }
  }
  running_.clear();
}

absl::Status Agent::Upkeep() {
  std::string here;
  for (const auto& [text, place] : places_) {
    absl::StrAppend(&here, text, " ", place.driver_version, "\n");
  }
  const bool changed = here != verified_;
  if (!changed && SteadyTime::Now() < next_upkeep_) return absl::OkStatus();
  for (const auto& [text, place] : places_) {
    if (!options_.verify_upgrades) break;
    ASSIGN_OR_RETURN(
        const int64_t queued,
        db::fleet::QueueVerification(*postgres_, *names_, place.environment, place.driver_version));
    if (queued == 0) continue;
    log::Info("$0 problems of $1 are to be verified", queued, place.environment.Name());
  }
  verified_ = here;
  next_upkeep_ = SteadyTime::Now() + kUpkeepEvery;
  ASSIGN_OR_RETURN(const std::optional<db::fleet::Thinned> thinned,
                   db::fleet::ThinFleetDaily(*postgres_, options_.keep));
  if (thinned.has_value()) {
    log::Info(
        "thinned: $0 superseded tunings, $1 ended tasks, $2 pooled tunings that nothing refers to",
        thinned->evidence, thinned->tasks, thinned->payloads);
  }
  return absl::OkStatus();
}

void Agent::ShowMetrics() {
  const bool behind = target_.value_or(heartbeat_.release) != heartbeat_.release;
  const int64_t unheeded = heartbeat_.pins.count + heartbeat_.bans.count + std::ssize(taken_bans_) -
                           std::ssize(heartbeat_.heeded_bans) + (behind ? 1 : 0);
  const int64_t refused = heartbeat_.pins.refused + heartbeat_.bans.refused +
                          (heartbeat_.release_error.empty() ? 0 : 1);
  std::vector<Metric> metrics = {
      {"convtune_fleet_connected", "1 if the agent has a connection to PostgreSQL",
       postgres_ != nullptr && postgres_->ok()},
      {"convtune_fleet_outbox_depth", "Tunings that wait to be delivered", state_.outbox_depth()},
      {"convtune_fleet_outbox_dropped_total", "Tunings that the outbox's bound dropped",
       state_.outbox_dropped()},
      {"convtune_fleet_delivered_total", "Tunings that were delivered", counts_.delivered},
      {"convtune_fleet_refused_total",
       "Tunings that broke a rule and were not delivered, since the daemon's start",
       state_.outbox_refused()},
      {"convtune_fleet_failures_total", "Turns of the agent that failed", counts_.failed_turns},
      {"convtune_fleet_tasks_claimed_total", "Queued problems that this node took",
       counts_.tasks_claimed},
      {"convtune_fleet_tasks_done_total", "Queued problems that this node tuned",
       counts_.tasks_done},
      {"convtune_fleet_tasks_failed_total", "Queued problems that failed here",
       counts_.tasks_failed},
      {"convtune_fleet_tasks_running", "Queued problems that are being tuned here",
       running_.size()},
      {"convtune_fleet_release", "The release that the node serves, 0 for none", state_.release()},
      {"convtune_fleet_unheeded_decisions",
       "The release, pins and bans of the fleet that the node does not follow yet, as of the last "
       "time that it read them",
       unheeded},
      {"convtune_fleet_refused_decisions",
       "Releases, pins and bans that the node refuses, since they were changed after they were "
       "decided, cannot be read or are not signed as the agent requires",
       refused},
      {"convtune_fleet_went_back_total",
       "Times that the node went to an older or another release, since PostgreSQL did not know the "
       "one that it served",
       counts_.went_back}};
  // Never: no time, so that no alert takes it for one.
  if (last_exchange_ != absl::InfinitePast()) {
    metrics.emplace_back("convtune_fleet_last_exchange_timestamp_seconds",
                         "When PostgreSQL answered the agent last",
                         absl::ToDoubleSeconds(last_exchange_ - absl::UnixEpoch()));
  }
  const MutexLock lock(metrics_mutex_);
  metrics_ = std::move(metrics);
  shown_waiting_since_ = waiting_since_;
}

std::vector<Metric> Agent::Metrics() const {
  const MutexLock lock(metrics_mutex_);
  std::vector<Metric> metrics = metrics_;
  // As it is now: the agent may be waiting for PostgreSQL.
  const absl::Duration lag =
      std::max(SteadyTime::Now() - shown_waiting_since_, absl::ZeroDuration());
  metrics.emplace_back("convtune_fleet_outbox_lag_seconds",
                       "Time since when something has waited and nothing was delivered",
                       absl::ToDoubleSeconds(lag));
  return metrics;
}

}  // namespace convtune::fleet
