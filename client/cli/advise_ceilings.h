// The best seen on a card, from the daemon's tunings.
#pragma once

#include <set>
#include <string>

#include "client/cli/advise_bounds.h"
#include "client/cli/context.h"

namespace convtune {

// Takes in the winners of at most 10,000 measured problems of the environment of
// the settings, but for those whose text is in `but`. What the daemon does not
// answer is left out.
void RaiseByStored(Context& context, const std::set<std::string>& but, Ceilings* ceilings);

}  // namespace convtune
