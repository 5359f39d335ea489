// The daemon's config file: settings, or one message that says what is wrong.
#include <sys/mman.h>
#include <unistd.h>

#include "server/convtuned/flags.h"
#include "tests/fuzz/fuzz.h"

using convtune::fuzz::Require;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int fd = memfd_create("config", MFD_CLOEXEC);
  Require(fd >= 0 && write(fd, data, size) == static_cast<ssize_t>(size));
  const auto parsed =
      convtune::convtuned::ParseFlags({"--config", "/proc/self/fd/" + std::to_string(fd)});
  close(fd);
  Require(parsed.flags.has_value() != (parsed.exit_code != 0));
  Require(parsed.flags.has_value() || !parsed.text.empty());
  if (!parsed.flags.has_value()) return 0;
  Require(parsed.flags->drain_timeout > absl::ZeroDuration() && parsed.flags->max_db_bytes >= 0);
  Require(parsed.flags->once == !parsed.flags->files.empty());
  return 0;
}
