// An Agent works beside a daemon: it delivers the node's tunings to the fleet, and
// brings the fleet's releases, pins, bans and queued problems to the node. README.md
// says what it promises.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "convtune/v1/fleet_service.pb.h"
#include "convtune/v1/release_service.pb.h"
#include "db/fleet/names.h"
#include "db/fleet/nodes.h"
#include "db/fleet/queue.h"
#include "db/fleet/releases.h"
#include "db/postgres/connection.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/model/environment.h"
#include "proto/monitoring/metrics_server.h"

namespace convtune::fleet {

// A Refetch decides whether a release, of which the daemon lacks problems, is fetched
// whole again. That helps once: a tuning that cannot be applied here, which was made
// with another cuBLASLt, say, cannot be applied the next time. One for each release.
class Refetch {
 public:
  // Whether it is fetched now, while the daemon lacks that many problems.
  bool Decide(int64_t missing);

 private:
  bool done_ = false;  // the release was fetched again once
};

// Not thread-safe: one thread runs it.
class Agent {
 public:
  struct Options {
    db::postgres::Connection::Options postgres;
    client::Client::Options daemon;
    std::string node;  // its name in the fleet
    bool tune = true;  // take problems that the fleet has queued
    // Queue what has to be verified when the node comes to another cuDNN or driver.
    bool verify_upgrades = false;
    absl::Duration keep = absl::Hours(24 * 90);  // what was superseded, in the fleet
    // Public keys (32 bytes each), one of which must have signed each decision; empty: decisions
    // need no signature.
    std::vector<std::string> trusted = {};
    absl::Duration lease = absl::Seconds(60);  // of a task
    // How often the node writes a heartbeat, and looks for all that PostgreSQL announces at once.
    absl::Duration refresh = absl::Seconds(10);
    const Clock* clock = nullptr;  // outlives it
    // Asked wherever the agent waits, at least every half minute.
    std::function<bool()> stop;
    // True once: what is kept in files is to be read anew.
    std::function<bool()> reload;
    // Asked at a reload and before each connection: the connection string of PostgreSQL as it is
    // now.
    std::function<absl::StatusOr<std::string>()> read_conninfo;
  };

  // INVALID_ARGUMENT names the option.
  static absl::StatusOr<std::unique_ptr<Agent>> Create(Options options);

  // Works until stop(). Whatever cannot be reached is tried again for ever, less
  // and less often; what cannot be mended by waiting (another agent has the
  // node's name, the schema is not known, the password is wrong) is tried again,
  // too, and said once.
  void Run();

  // Thread-safe; as of the last turn, but for the lag, which is as of now.
  std::vector<Metric> Metrics() const;

 private:
  // An environment that a device of the node has. The daemon is asked by its text, since devices
  // of several cuDNN may have one name.
  struct Place {
    Environment environment;
    std::string driver_version;
    std::vector<std::string> devices;  // their names
  };
  // Since the agent's start.
  struct Counts {
    int64_t delivered = 0;
    int64_t failed_turns = 0;
    int64_t tasks_claimed = 0;
    int64_t tasks_done = 0;
    int64_t tasks_failed = 0;
    int64_t went_back = 0;
  };
  struct RunningTask {
    db::fleet::FleetTask task;
    std::string job;
    SteadyTime renew;
  };

  explicit Agent(Options options) : options_(std::move(options)), checked_(options_.trusted) {}

  // Reads the TLS files and the connection string anew if a reload is asked for; keeps
  // those that cannot be read as they were. Returns whether a reload was asked for.
  bool ReloadIfAsked();
  absl::Status Turn();
  // FAILED_PRECONDITION: the daemon works with another node's agent.
  absl::Status ReadState();
  // What is wrong although the turn went well; "": nothing.
  std::string Trouble() const;
  absl::Status EnsureConnected();
  absl::Status ReadPlaces();
  // Tells the fleet how the node is. Reads the places anew, too.
  absl::Status Heartbeat();
  // Tells the fleet which problems programs of this node missed.
  absl::Status Wanted();
  // Delivers what waits, and puts the fleet's choice back where a tuning of this
  // node replaced it.
  absl::Status Push();
  absl::Status Restore(const std::map<std::string, std::vector<std::string>>& delivered);

  // Queues what an upgrade of the node asks for, and thins the fleet, now and then.
  absl::Status Upkeep();
  void ShowMetrics();

  absl::Status Follow();
  // Tells the fleet what holds for programs, too: what the daemon took and has published.
  absl::Status Heed();
  // Counts the problems of the release that the daemon has not, and those that it
  // has from a fleet and the release has not. Now and then, and after a release.
  absl::Status Compare();
  absl::Status FollowPins();
  // Before releases: what is banned is no answer from the release on that brings it.
  absl::Status FollowBans();
  // Gives the tunings to the daemon. Returns how many it did not take, since the node has to
  // deliver a tuning of its own of that problem first. A problem whose choice was withdrawn loses
  // the fleet's tuning.
  absl::StatusOr<int64_t> Apply(const std::vector<db::fleet::ReleasedTuning>& tunings);
  absl::Status Withdraw(const db::fleet::ReleasedTuning& withdrawn);
  absl::StatusOr<v1::Tuning> ReadTuning(const std::string& environment_text,
                                        const std::string& problem_text);
  // Why a pin that the daemon has is no answer, a ban that came later say; "": it is.
  absl::StatusOr<std::string> WhyVoid(const db::fleet::FleetPin& pin);
  // A request of Apply. Returns as that.
  absl::StatusOr<int64_t> Send(const v1::ApplyTuningsRequest& request);
  // Puts the node's tunings into the outbox where the fleet does not have all that
  // was delivered, and those of the release where it lost that.
  absl::Status DeliverWhatWasLost(db::postgres::Connection& postgres, bool release_lost);

  absl::Status WorkOnTasks();
  // Returns whether it has ended.
  absl::StatusOr<bool> TendTask(RunningTask* running);
  absl::Status ClaimMore();
  // Gives the task back and returns the daemon's error where that is gone, slow or full.
  absl::Status StartTask(const db::fleet::FleetTask& task);
  void GiveTasksBack();

  void Wait(absl::Duration time);

  Options options_;  // its connection string is replaced by a reload
  std::unique_ptr<client::Client> daemon_;
  std::unique_ptr<db::postgres::Connection> postgres_;  // nullptr: not connected
  std::unique_ptr<db::fleet::FleetNames> names_;
  int64_t node_id_ = 0;
  std::string fleet_id_;  // that was connected to last; see FleetNames::fleet_id
  std::string requeued_;  // fleet and release for which all was put into the outbox
  // The last one, and what has been found out for the next.
  db::fleet::Heartbeat heartbeat_;
  db::fleet::CheckedReleases checked_;
  int shipped_bans_ = 0;         // that came with the daemon
  std::set<int64_t> held_bans_;  // the fleet's that the daemon has
  // The fleet's that hold in the daemon, by that or a ban of its own: heeded once published.
  std::vector<int64_t> taken_bans_;
  bool pending_ = false;           // Publication.pending: asked for again in the next turn
  std::string publication_error_;  // Publication.error
  std::string went_back_;          // from and to which release, since the fleet did not know it
  // The release that the node should serve; 0: none, nullopt: the one that it has.
  std::optional<int64_t> target_;
  // A ban that kept back choices of the release has ended: the release is followed again.
  bool ban_ended_ = false;
  std::map<std::string, Place> places_;              // by environment text
  std::vector<std::string> followed_;                // environments that were followed last
  bool follow_all_ = true;                           // whatever the node says it serves
  int64_t followed_release_ = 0;                     // the last that was followed
  absl::Time followed_time_ = absl::InfinitePast();  // when it was made
  SteadyTime next_compare_ = SteadyTime::InfinitePast();
  Refetch refetch_;
  v1::FleetState state_;
  std::vector<RunningTask> running_;
  SteadyTime next_refresh_ = SteadyTime::InfinitePast();
  SteadyTime next_claim_ = SteadyTime::InfinitePast();
  bool announced_ = true;  // there may be decisions that the node does not follow yet
  absl::Duration backoff_;
  SteadyTime waiting_since_ = SteadyTime::InfiniteFuture();  // that something is in the outbox
  SteadyTime next_upkeep_ = SteadyTime::InfinitePast();
  std::string verified_;  // environments and drivers at the last Upkeep
  Counts counts_;
  absl::Time last_exchange_ = absl::InfinitePast();  // when PostgreSQL answered last
  mutable Mutex metrics_mutex_;
  std::vector<Metric> metrics_ GUARDED_BY(metrics_mutex_);
  SteadyTime shown_waiting_since_ GUARDED_BY(metrics_mutex_) = SteadyTime::InfiniteFuture();
};

}  // namespace convtune::fleet
