// A ProgressBar shows on a terminal how far a tuning is.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "client/cli/output/io.h"

namespace convtune::cli {

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
  ~ProgressBar() { Clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void Show(const Progress& progress);
  // Takes the line away.
  void Clear();

 private:
  Io& io_;
  bool shown_ = false;
};

}  // namespace convtune::cli
