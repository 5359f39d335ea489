#include "client/cli/input/author.h"

#include <pwd.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace convtune::cli::input {

std::string AuthorOf(const std::string& given) {
  if (!given.empty()) return given;
  const passwd* entry = getpwuid(geteuid());
  return entry != nullptr && entry->pw_name[0] != '\0' ? std::string(entry->pw_name)
                                                       : absl::StrCat("uid ", geteuid());
}

}  // namespace convtune::cli::input
