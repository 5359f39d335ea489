// Sends datagrams to the daemon: never blocking, dropped when nobody listens.
#pragma once

#include <stdint.h>

#include "client/preload/report/problems.h"
#include "db/snapshot/datagram.h"

namespace convtune::preload::report {

void TellMiss(const Problem& problem, snapshot::UnservedReason reason, uint32_t count);
// The datagram's header is filled in here. True if it was sent.
bool TellPlan(const Problem& problem, snapshot::ObservedPlanDatagram* datagram);
bool TellLegacy(const Problem& problem, snapshot::ObservedLegacyDatagram* datagram);

}  // namespace convtune::preload::report
