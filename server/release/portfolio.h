// ChoosePortfolio makes of a tuning the choices that programs are served. Pure.
#pragma once

#include "proto/model/release/release.h"
#include "server/lookup/indexed_tuning.h"

namespace convtune::release {

// For each API the best; the best that is neutral; and the best without workspace. A candidate is
// neutral if its numerics are the stock choice's or a part of them, it is deterministic where that
// is, and it needs no more workspace. Besides them the stock choice, where it is certain which one
// it is. Pins are left aside, and banned candidates are never chosen.
// A result that could not be judged is never chosen. Where the stock choice's could not be, and no
// other candidate beats it, programs get no choice in its place. A tuning of which no result could
// be judged has no choice, and neither has one in which nothing ran that can be put in place of
// another engine (one that wants its filter reordered cannot).
Portfolio ChoosePortfolio(const lookup::IndexedTuning& indexed);

}  // namespace convtune::release
