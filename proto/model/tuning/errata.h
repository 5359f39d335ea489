// Errata are the bans that come with convtune: engines of cuDNN that are known to give wrong
// results or to fail.
#pragma once

#include <vector>

#include "proto/model/tuning/ban.h"

namespace convtune {

// "shipped/1" and so on: their numbers are negative, so that no daemon's ban has the same. Each
// reason names where the fault is described.
std::vector<Ban> ShippedBans();

}  // namespace convtune
