#include "proto/base/address.h"

#include <sys/un.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/base/errors.h"

namespace convtune {
namespace {

constexpr char kUnix[] = "unix:";
constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;

}  // namespace

absl::StatusOr<Address> Address::Parse(const std::string& text, const std::string& field,
                                       int least_port) {
  const auto bad = [&](const std::string& rule) {
    return InvalidArgument(field, ": ", rule, ", is '", text, "'");
  };
  Address address;
  if (text.starts_with(kUnix)) {
    address.unix_socket = true;
    address.target = text.substr(sizeof kUnix - 1);
    while (address.target.starts_with("//")) address.target.erase(0, 1);  // unix:///path
    if (address.target.empty() || address.target.size() > kMaxPath) {
      return bad(absl::StrCat("the socket's path must have 1 to ", kMaxPath, " bytes"));
    }
    return address;
  }
  const size_t colon = text.rfind(':');
  if (text.empty() || text[0] == '/' || colon == std::string::npos || colon == 0) {
    return bad("must be unix:PATH or HOST:PORT");
  }
  address.target = text;
  address.host = text.substr(0, colon);
  address.port = text.substr(colon + 1);
  if (address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']') {
    address.host = address.host.substr(1, address.host.size() - 2);
  } else if (address.host.find_first_of(":[]/= ") != std::string::npos) {
    return bad("the host must be a name, an IPv4 address or an IPv6 one in brackets");
  }
  int port = 0;
  if (!absl::SimpleAtoi(address.port, &port) || port < least_port || port > 65535) {
    return bad(absl::StrCat("the port must be ", least_port, " to 65535"));
  }
  return address;
}

std::string Address::ToText() const { return unix_socket ? kUnix + target : target; }

}  // namespace convtune
