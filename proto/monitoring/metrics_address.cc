#include "proto/monitoring/metrics_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace convtune {
namespace {

bool IsAddress(int family, const std::string& text) {
  in6_addr bytes{};
  return inet_pton(family, text.c_str(), &bytes) == 1;
}

}  // namespace

absl::Status ValidateMetricsAddress(const std::string& text) {
  if (text.empty()) return absl::OkStatus();
  const size_t colon = text.rfind(':');
  const std::string host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  int port = -1;
  const bool ip =
      bracketed ? IsAddress(AF_INET6, host.substr(1, host.size() - 2)) : IsAddress(AF_INET, host);
  if (colon == std::string::npos || !ip || !absl::SimpleAtoi(text.substr(colon + 1), &port) ||
      port < 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("must be IP:PORT such as 127.0.0.1:9464 or [::1]:9464, is ", text));
  }
  return absl::OkStatus();
}

}  // namespace convtune
