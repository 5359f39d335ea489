// A HeardAgent is the fleet's agent that works with this daemon. Two agents of different nodes
// would undo each other's releases, pins and bans.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace convtune::rpc::services {

// Not thread-safe.
class HeardAgent {
 public:
  // After so long without a call an agent counts as gone. The longest pause between two turns of
  // one is half of it; a turn that waits for PostgreSQL may take longer.
  static constexpr absl::Duration kGone = absl::Minutes(1);

  explicit HeardAgent(SteadyTime now) : heard_(now), refused_time_(SteadyTime::InfinitePast()) {}

  // The agent of that node begins a turn. An agent of an earlier version gives "": it is not
  // refused, and keeps no other out. FAILED_PRECONDITION: another node's agent is not gone.
  absl::Status Begin(const std::string& node, SteadyTime now) {
    const bool is_other = !node.empty() && !node_.empty() && node != node_;
    if (is_other && now - heard_ < kGone) {
      refused_ = node;
      refused_time_ = now;
      return absl::FailedPreconditionError(absl::StrCat(
          "agent: the daemon works with the agent of the node ", node_, " and refuses that of ",
          node, ": stop one of them, or give it another daemon (--address). The daemon takes ",
          node, " once ", node_, " has been silent for ", absl::FormatDuration(kGone)));
    }
    node_ = node;
    Hear(now);
    return absl::OkStatus();
  }
  // The agent goes on with its turn.
  void Hear(SteadyTime now) { heard_ = now; }

  absl::Duration Silence(SteadyTime now) const { return now - heard_; }
  // The node whose agent was refused last; "": none was for kGone, or it is the one that is heard.
  std::string Refused(SteadyTime now) const {
    return now - refused_time_ < kGone && refused_ != node_ ? refused_ : "";
  }

 private:
  std::string node_;
  SteadyTime heard_;
  std::string refused_;
  SteadyTime refused_time_;
};

}  // namespace convtune::rpc::services
