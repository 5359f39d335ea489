// Datagrams as the interposer sends them.
#pragma once

#include <string>

#include "db/snapshot/datagram.h"
#include "db/snapshot/key_convert.h"

namespace convtune::release {

template <typename Datagram>
Datagram MakeDatagram(snapshot::DatagramKind kind, const std::string& problem,
                      const std::string& environment) {
  Datagram datagram = {};
  memcpy(datagram.header.magic, snapshot::kDatagramMagic, sizeof snapshot::kDatagramMagic);
  datagram.header.version = snapshot::kDatagramVersion;
  datagram.header.kind = static_cast<uint16_t>(kind);
  datagram.header.bytes = sizeof datagram;
  datagram.header.pid = 42;
  datagram.header.environment = snapshot::ToKey(Environment::Parse(environment).value()).value();
  datagram.header.problem = snapshot::ToKey(ConvProblem::Parse(problem).value()).value();
  return datagram;
}

inline snapshot::MissDatagram MissOf(
    const std::string& problem, const std::string& environment, uint32_t count = 1,
    snapshot::UnservedReason reason = snapshot::UnservedReason::kNoEntry) {
  auto datagram =
      MakeDatagram<snapshot::MissDatagram>(snapshot::DatagramKind::kMiss, problem, environment);
  datagram.reason = static_cast<uint32_t>(reason);
  datagram.count = count;
  return datagram;
}

inline snapshot::ObservedPlanDatagram PlanOf(const std::string& problem,
                                             const std::string& environment, int engine) {
  auto datagram = MakeDatagram<snapshot::ObservedPlanDatagram>(
      snapshot::DatagramKind::kObservedPlan, problem, environment);
  datagram.engine_index = engine;
  datagram.knob_count = 2;
  datagram.knobs[0] = {2, 0, 5};
  datagram.knobs[1] = {14, 0, 1};
  datagram.numerical_notes = NoteBit(NumericalNote::kTensorCore);
  datagram.workspace_bytes = 64;
  datagram.executions = 100;
  return datagram;
}

// Algorithms 1 and 6, in this order.
inline snapshot::ObservedLegacyDatagram LegacyOf(const std::string& problem,
                                                 const std::string& environment) {
  auto datagram = MakeDatagram<snapshot::ObservedLegacyDatagram>(
      snapshot::DatagramKind::kObservedLegacy, problem, environment);
  datagram.result_count = 2;
  datagram.results[0] = {1, 1, 12.5F, 1, 0};
  datagram.results[1] = {6, 0, 20.0F, 1, 1 << 20};
  return datagram;
}

}  // namespace convtune::release
