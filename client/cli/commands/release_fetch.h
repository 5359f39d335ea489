// A ReleaseFetch brings the daemon's snapshot into a folder of this machine.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cli/app/context.h"
#include "convtune/v1/release_service.pb.h"

namespace convtune::cli::commands {

// Not thread-safe.
class ReleaseFetch {
 public:
  // `folder` is made if need be.
  explicit ReleaseFetch(std::string folder) : folder_(std::move(folder)) {}

  // Tries until it has the snapshot, for at most `wait`, while the daemon cannot
  // be reached or has published nothing. With `watch` above 0 looks again at that
  // interval until SIGTERM or SIGINT, through errors, which it says.
  app::ExitCode Run(app::Context& context, client::Client& client, absl::Duration wait,
                    absl::Duration watch);

 private:
  // Puts the daemon's snapshot in place where it is another one, and says so. No
  // more of it than a piece is in memory.
  absl::Status Fetch(app::Context& context, client::Client& client);

  const std::string folder_;
  uint64_t version_ = 0;  // of what is in place; 0: not known
};

}  // namespace convtune::cli::commands
