#include "client/cli/output/atomic_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/errors.h"
#include "proto/base/replace_file.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::output {
namespace {

// Names that a signal's handler removes. A program writes one or two at a time.
std::array<std::atomic<const char*>, 4> unfinished;
static_assert(std::atomic<const char*>::is_always_lock_free);

void RemoveUnfinished(int signal_number) {
  for (const std::atomic<const char*>& name : unfinished) {
    if (const char* const path = name.load()) unlink(path);
  }
  // Not reset by SA_RESETHAND before: a second signal must find this one.
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

void HandleSignals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action.sa_handler = RemoveUnfinished;
    sigaction(number, &action, nullptr);
  }
}

void Exchange(const char* from, const char* to) {
  for (std::atomic<const char*>& name : unfinished) {
    const char* expected = from;
    if (name.compare_exchange_strong(expected, to)) return;
  }
}

absl::Status CannotBeWritten(const char* argument, const std::string& path) {
  const int error_number = errno;
  return InvalidArgument(argument, ": ", path, " cannot be written: ", std::strerror(error_number));
}

// The file that `path` names in the end, through links; it need not be there,
// which is why canonical() would not do. REQUIRES: stat() has found no circle.
std::string BehindLinks(const std::string& path) {
  namespace fs = std::filesystem;
  fs::path at = path;
  std::error_code error;
  for (fs::path next = fs::read_symlink(at, error); !error; next = fs::read_symlink(at, error)) {
    at = at.parent_path() / next;
  }
  return at.string();
}

absl::StatusOr<std::string> Target(const std::string& path, const char* argument) {
  if (path == "-") {
    return InvalidArgument(argument, ": must be a file, is -");
  }
  struct stat there {};
  if (stat(path.c_str(), &there) != 0) {
    if (errno != ENOENT) return CannotBeWritten(argument, path);
  } else if (!S_ISREG(there.st_mode)) {
    return InvalidArgument(argument, ": ", path, " must be a file, or not be there");
  }
  return BehindLinks(path);
}

}  // namespace

AtomicFile::AtomicFile(std::string path, std::string temporary, int fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {
  HandleSignals();
  Exchange(nullptr, temporary_.c_str());
}

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path,
                                                               const char* argument) {
  ASSIGN_OR_RETURN(std::string target, Target(path, argument));
  std::string temporary = target + ".part-XXXXXX";
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return CannotBeWritten(argument, path);
  const mode_t mask = umask(0);
  umask(mask);
  fchmod(fd, 0666 & ~mask);
  return std::unique_ptr<AtomicFile>(new AtomicFile(std::move(target), std::move(temporary), fd));
}

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::CreateOver(
    const std::string& path, const char* argument,
    const std::vector<std::string_view>& beginnings) {
  ASSIGN_OR_RETURN(const std::string target, Target(path, argument));
  char begin[64] = {};
  std::ifstream there(target, std::ios::binary);
  there.read(begin, sizeof begin);
  const std::string_view found(begin, static_cast<size_t>(there.gcount()));
  const bool known = std::any_of(beginnings.begin(), beginnings.end(),
                                 [&](std::string_view b) { return found.starts_with(b); });
  if (!found.empty() && !known) {
    return InvalidArgument(argument, ": ", path,
                           " is a file that this command did not write; remove it first");
  }
  return Create(path, argument);
}

absl::Status AtomicFile::WriteWhole(const std::string& path, const char* argument,
                                    std::string_view bytes) {
  ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, Create(path, argument));
  RETURN_IF_ERROR(file->Write(bytes));
  return file->Commit();
}

AtomicFile::~AtomicFile() {
  close(fd_);
  if (!committed_) unlink(temporary_.c_str());
  Exchange(temporary_.c_str(), nullptr);
}

absl::Status AtomicFile::Write(std::string_view bytes) {
  if (WriteAll(fd_, bytes)) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(path_, ": cannot be written: ", std::strerror(errno)));
}

absl::Status AtomicFile::Commit() {
  const absl::Status placed = PutInPlace(fd_, temporary_, path_);
  committed_ = placed.ok();
  // UNAVAILABLE would be a daemon that does not answer.
  return placed.ok() ? placed : absl::InternalError(placed.message());
}

}  // namespace convtune::cli::output
