#include "client/cpp/channel.h"

#include <grpcpp/channel.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace convtune::client {
namespace {

constexpr int kMaxReceiveBytes = 256 << 20;
// A daemon that starts is found soon by those who wait for it.
constexpr int kFirstReconnectMs = 50;
constexpr int kLongestReconnectMs = 1000;
constexpr size_t kMaxSocketPath = 107;  // sizeof(sockaddr_un::sun_path) - 1

absl::Status BadAddress(const std::string& field, const std::string& text,
                        const std::string& rule) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", rule, ", is '", text, "'"));
}

absl::StatusOr<std::string> ReadPem(const std::string& field, const std::string& path) {
  if (path.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": must name a PEM file, as TCP is served with mutual TLS only"));
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": must name a readable PEM file, but '", path,
                     "' is not: ", errno != 0 ? std::strerror(errno) : "empty"));
  }
  return text.str();
}

}  // namespace

absl::StatusOr<Address> Address::Parse(const std::string& text, const std::string& field) {
  Address address;
  if (absl::StartsWith(text, "unix:")) {
    address.unix_socket = true;
    std::string path = text.substr(5);
    if (absl::StartsWith(path, "///")) path.erase(0, 2);
    if (path.empty() || path.size() > kMaxSocketPath) {
      return BadAddress(field, text, "the socket's path must have 1 to 107 bytes");
    }
    address.target = path;
    return address;
  }
  const size_t colon = text.rfind(':');
  if (text.empty() || text[0] == '/' || colon == std::string::npos || colon == 0) {
    return BadAddress(field, text, "must be unix:PATH or HOST:PORT");
  }
  const std::string host = text.substr(0, colon);
  const bool bracketed = host.front() == '[' && host.back() == ']' && host.size() > 2;
  if (!bracketed && host.find_first_of(":[]/ ") != std::string::npos) {
    return BadAddress(field, text,
                      "the host must be a name, an IPv4 address or an IPv6 one in brackets");
  }
  int port = 0;
  if (!absl::SimpleAtoi(text.substr(colon + 1), &port) || port < 1 || port > 65535) {
    return BadAddress(field, text, "the port must be 1 to 65535");
  }
  address.target = text;
  return address;
}

std::string Address::ToText() const { return unix_socket ? absl::StrCat("unix:", target) : target; }

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const Address& address,
                                                           const TlsFiles& tls) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstReconnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLongestReconnectMs);
  arguments.SetUserAgentPrefix("convtune/" CONVTUNE_VERSION);
  if (address.unix_socket) {
    return grpc::CreateCustomChannel(address.ToText(), grpc::InsecureChannelCredentials(),
                                     arguments);
  }
  grpc::SslCredentialsOptions options;
  ASSIGN_OR_RETURN(options.pem_root_certs, ReadPem("tls_ca", tls.ca));
  ASSIGN_OR_RETURN(options.pem_cert_chain, ReadPem("tls_cert", tls.cert));
  ASSIGN_OR_RETURN(options.pem_private_key, ReadPem("tls_key", tls.key));
  return grpc::CreateCustomChannel(address.target, grpc::SslCredentials(options), arguments);
}

}  // namespace convtune::client
