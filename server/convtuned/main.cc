// convtuned: finds the fastest cuDNN algorithm for a convolution once, keeps
// it, and answers it.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "server/convtuned/daemon.h"
#include "server/convtuned/flags.h"
#include "server/convtuned/logging.h"
#include "server/convtuned/signals.h"

int main(int argc, char** argv) {
  try {
    const convtune::daemon::ParsedFlags parsed =
        convtune::daemon::ParseFlags(std::vector<std::string>(argv + 1, argv + argc));
    if (!parsed.flags.has_value()) {
      std::fputs(parsed.text.c_str(), parsed.exit_code == 0 ? stdout : stderr);
      return parsed.exit_code;
    }
    convtune::daemon::StopSignals signals;
    convtune::daemon::InitLogging(parsed.flags->json_log, parsed.flags->log_level);
    return convtune::daemon::RunDaemon(*parsed.flags, &signals);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "convtuned: %s\n", e.what());
    return 1;
  }
}
