#include "client/cli/output/progress.h"

#include <algorithm>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/cli/output/units.h"

namespace convtune::cli::output {

std::string RenderProgress(const Progress& progress, int columns) {
  constexpr int kBar = 20;
  const int filled =
      progress.total > 0 ? std::clamp(kBar * progress.done / progress.total, 0, kBar) : 0;
  std::string line = absl::StrCat("[", std::string(static_cast<size_t>(filled), '#'),
                                  std::string(static_cast<size_t>(kBar - filled), '-'), "] ",
                                  progress.done, "/", progress.total);
  if (progress.left.has_value() && progress.done < progress.total) {
    absl::StrAppend(&line, "  ", FormatAge(*progress.left), " left");
  }
  std::string tail;
  if (!progress.current.empty() && progress.candidates_total > 0) {
    tail =
        absl::StrCat("  ", progress.candidates_done, "/", progress.candidates_total, " candidates");
  }
  const int room = columns - static_cast<int>(line.size() + tail.size()) - 2;
  if (!progress.current.empty() && room >= 8) {
    std::string current = progress.current;
    if (static_cast<int>(current.size()) > room) {
      current = current.substr(0, static_cast<size_t>(room - 3)) + "...";
    }
    absl::StrAppend(&line, "  ", current);
  }
  line += tail;
  return line.substr(0, static_cast<size_t>(std::max(columns, 0)));
}

ProgressBar::~ProgressBar() {
  if (shown_) io_.err << "\r\x1b[K" << std::flush;
}

void ProgressBar::Show(const Progress& progress) {
  if (io_.err_is_terminal) Show(RenderProgress(progress, io_.columns - 1));
}

void ProgressBar::Show(const std::string& line) {
  if (!io_.err_is_terminal) return;
  io_.err << "\r" << line << "\x1b[K" << std::flush;
  shown_ = true;
}

void ProgressBar::ShowBytes(const std::string& what, int64_t done, int64_t total) {
  if (SteadyTime::Now() < next_) return;
  next_ = SteadyTime::Now() + kPeriod;
  Show(absl::StrCat(what, "  ", FormatBytes(done),
                    total > 0 ? absl::StrCat(" of ", FormatBytes(total)) : ""));
}

}  // namespace convtune::cli::output
