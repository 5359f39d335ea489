// Lines that show on a terminal how far a tuning, or a file, is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "client/cli/output/io.h"
#include "proto/base/clock.h"

namespace convtune::cli::output {

// Value type.
struct Progress {
  int done = 0;                                       // problems that ended
  int total = 0;                                      // problems in all
  std::optional<absl::Duration> left = std::nullopt;  // estimate of the time to the end
  std::string current;  // short text form of the one in work; may be empty
  int candidates_done = 0;
  int candidates_total = 0;  // 0: not listed yet
};

// One line of at most `columns` columns:
// "[#####---------------]  3/12  2 min left  fwd,x=...  17/41 candidates".
std::string RenderProgress(const Progress& progress, int columns);

// A line on io.err that is written over again; nothing where that is no
// terminal. Not thread-safe.
class ProgressBar {
 public:
  explicit ProgressBar(Io& io) : io_(io) {}
  ~ProgressBar();  // takes the line away
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void Show(const Progress& progress);
  void Show(const std::string& line);
  // Shows that `done` bytes are done, as "sending  12.0 MiB of 48.0 MiB", at most ten times a
  // second. `total` 0: not known.
  void ShowBytes(const std::string& what, int64_t done, int64_t total = 0);

 private:
  static constexpr absl::Duration kPeriod = absl::Milliseconds(100);

  Io& io_;
  bool shown_ = false;
  SteadyTime next_ = SteadyTime::Now() + kPeriod;  // when bytes are shown again
};

}  // namespace convtune::cli::output
