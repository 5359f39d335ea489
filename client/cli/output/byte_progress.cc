#include "client/cli/output/byte_progress.h"

#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/output/units.h"

namespace convtune::cli {
namespace {

constexpr absl::Duration kPeriod = absl::Milliseconds(100);

}  // namespace

std::string RenderBytes(const std::string& what, int64_t done, int64_t total) {
  return absl::StrCat(what, "  ", FormatBytes(done),
                      total > 0 ? absl::StrCat(" of ", FormatBytes(total)) : "");
}

ByteProgress::ByteProgress(Io& io, std::string what, int64_t total)
    : io_(io), what_(std::move(what)), total_(total), next_(absl::Now() + kPeriod) {}

ByteProgress::~ByteProgress() {
  if (shown_) io_.err << "\r\x1b[K" << std::flush;
}

void ByteProgress::Show(int64_t done) {
  if (!io_.err_is_terminal || absl::Now() < next_) return;
  next_ = absl::Now() + kPeriod;
  io_.err << "\r" << RenderBytes(what_, done, total_) << "\x1b[K" << std::flush;
  shown_ = true;
}

}  // namespace convtune::cli
