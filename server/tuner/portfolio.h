// What a problem is served, from what is known of it. Pure functions.
#pragma once

#include "proto/model/release.h"
#include "server/tuner/pareto.h"

namespace convtune {

// For each API the best; the best that is neutral, which is: its numerical notes
// are the stock choice's or a part of them, it is deterministic where that is,
// and it needs no more workspace; and the best without workspace. Besides them
// the stock choice, where it is certain which one it is. Pins are left aside.
// Without choices if nothing ran that could be put in place of another engine
// (one that wants its filter reordered cannot).
Portfolio ChoosePortfolio(const IndexedTuning& indexed);

}  // namespace convtune
