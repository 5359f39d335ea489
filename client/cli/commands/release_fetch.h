// FetchRelease brings the daemon's snapshot into a folder of this machine.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "client/cli/app/context.h"
#include "client/cpp/client.h"

namespace convtune::cli::commands {

// `folder` is made if need be. Tries until it has the snapshot, for at most `wait`, while the
// daemon cannot be reached or has published nothing. With `watch` above 0 looks again at that
// interval until SIGTERM or SIGINT, through errors, which it says.
app::ExitCode FetchRelease(app::Context& context, client::Client& client, const std::string& folder,
                           absl::Duration wait, absl::Duration watch);

}  // namespace convtune::cli::commands
