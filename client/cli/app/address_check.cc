#include "client/cli/app/address_check.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace convtune::cli::app {
namespace {

constexpr char kAskForAccess[] =
    "join the group of the socket or of its folder, or use a socket for everybody with "
    "CONVTUNE_ADDRESS";

}  // namespace

std::vector<Finding> ExamineAddress(const client::Address& address) {
  if (!address.unix_socket) return {};
  struct stat status {};
  if (stat(address.target.c_str(), &status) != 0) {
    const int error = errno;
    const bool denied = error == EACCES;
    return {Problem(absl::StrCat("socket ", address.target, ": ", std::strerror(error)),
                    denied
                        ? kAskForAccess
                        : "start the daemon with `convtuned`, or say where it is with --address")};
  }
  if (!S_ISSOCK(status.st_mode)) {
    return {Problem(absl::StrCat(address.target, " is not a socket"),
                    "give the daemon's socket with --address")};
  }
  if (access(address.target.c_str(), R_OK | W_OK) != 0) {
    return {Problem(absl::StrCat("socket ", address.target, ": ", std::strerror(errno)),
                    kAskForAccess)};
  }
  return {Fine(absl::StrCat("socket ", address.target, " is there"))};
}

}  // namespace convtune::cli::app
