// convtuned: finds the fastest cuDNN algorithm for a convolution once, keeps
// it, and answers it.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "proto/monitoring/log.h"
#include "server/convtuned/daemon.h"
#include "server/convtuned/flags.h"
#include "server/convtuned/signals.h"
#include "server/rpc/services/request_log.h"

int main(int argc, char** argv) {
  try {
    const convtune::convtuned::ParsedFlags parsed =
        convtune::convtuned::ParseFlags(std::vector<std::string>(argv + 1, argv + argc));
    if (!parsed.flags.has_value()) {
      std::fputs(parsed.text.c_str(), parsed.exit_code == 0 ? stdout : stderr);
      return parsed.exit_code;
    }
    convtune::convtuned::StopSignals signals;
    convtune::log::Init(parsed.flags->json_log, parsed.flags->log_level,
                        convtune::rpc::services::CurrentRequestId);
    return convtune::convtuned::RunDaemon(*parsed.flags, &signals);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "convtuned: %s\n", e.what());
    return 1;
  }
}
