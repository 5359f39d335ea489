// Datagrams from programs: anything may write to the socket.
#include "db/snapshot/datagram.h"

#include "db/snapshot/key_convert.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace convtune::snapshot;  // NOLINT(google-build-using-namespace)
  if (ReadDatagramKind(data, size) == 0) return 0;
  DatagramHeader header;
  memcpy(&header, data, sizeof header);
  const auto problem = ToProblem(header.problem);
  if (problem.ok()) {
    const auto key = ToKey(*problem);
    convtune::fuzz::Require(key.ok() && memcmp(&*key, &header.problem, sizeof *key) == 0);
  }
  const auto environment = ToEnvironment(header.environment);
  if (environment.ok()) {
    const auto key = ToKey(*environment);
    convtune::fuzz::Require(key.ok() && *key == header.environment);
  }
  return 0;
}
