// BanEffects say what a ban changes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/model/tuning/digest.h"

namespace convtune::commit {

// A tuning whose answer without constraints is another under a ban.
struct BanChange {
  TuningKey key;
  std::string before;   // text form of the winner
  std::string after;    // empty: every usable candidate is banned
  double ratio = 0;     // time of the new winner over that of the old one; 0: not both were timed
  bool pinned = false;  // the old winner was
};

struct BanEffects {
  std::vector<BanChange> changes;  // ordered by environment and problem; the first ones
  int64_t change_count = 0;        // of all
  int64_t lost_count = 0;          // of these, without a candidate that is left
  int64_t listed_count = 0;        // tunings that have a candidate that it bans
};

}  // namespace convtune::commit
