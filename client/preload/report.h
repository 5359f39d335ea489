// Sends datagrams to the daemon: never blocking, dropped when nobody listens.
#pragma once

#include <stdint.h>

#include "client/preload/problems.h"
#include "db/format/datagram.h"

namespace convtune::preload {

void TellMiss(const Problem& problem, format::MissReason reason, uint32_t count);
// The datagram's header is filled in here. True if it was sent.
bool TellPlan(const Problem& problem, format::ObservedPlanDatagram* datagram);
bool TellLegacy(const Problem& problem, format::ObservedLegacyDatagram* datagram);

}  // namespace convtune::preload
