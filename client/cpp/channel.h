// The address of a daemon, and the connection to it. gRPC stays inside client/cpp:
// its headers are included by channel.cc, client.cc and connection.cc only.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace grpc {
class Channel;
}

namespace convtune::client {

// PEM files of a mutual TLS connection. Value type.
struct TlsFiles {
  std::string ca;    // certificates that the daemon's is checked against
  std::string cert;  // the client's certificate chain
  std::string key;   // its private key
};

// An Address is the place where a daemon listens. Value type.
struct Address {
  bool unix_socket = false;
  std::string target;  // the socket's path, or HOST:PORT

  // Reads "unix:PATH" (a path of 1 to 107 bytes) or "HOST:PORT" (port 1 to
  // 65535; an IPv6 host in brackets). INVALID_ARGUMENT names `field` and rule.
  static absl::StatusOr<Address> Parse(const std::string& text,
                                       const std::string& field = "address");
  // The form that Parse reads.
  std::string ToText() const;

  friend bool operator==(const Address&, const Address&) = default;
};

// Makes a channel; connects at the first call. TCP needs all three files;
// a unix socket needs none and ignores them. INVALID_ARGUMENT names the file
// that is missing or unreadable. Received messages may have up to 256 MiB.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const Address& address,
                                                           const TlsFiles& tls);

}  // namespace convtune::client
