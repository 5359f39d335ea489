// The baseline: a server that does nothing but gRPC's own work.
#pragma once

#include <string>

namespace convtune::bench {

// Serves BatchGet at `address` by the same library, messages and callback API
// as the daemon: reads each request into its message and answers with `reply`,
// which is ready. Ends with its standard input. Returns an exit status.
int ServeReadyReply(const std::string& address, const std::string& reply);

}  // namespace convtune::bench
