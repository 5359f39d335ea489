// A Connection calls the methods of a daemon. The clients derive from it.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/channel.h"
#include "google/protobuf/message_lite.h"
#include "proto/base/status_macros.h"

namespace grpc {
class ClientContext;
class Status;
}  // namespace grpc

namespace convtune::client {

// Blocking calls. Thread-safe: calls may run side by side. Does not connect
// before the first.
//
// Every call returns the daemon's error with its code, and with its details
// under kRpcDetailsUrl (see rpc_error.h). UNAVAILABLE: no daemon could be
// reached, or it is stopping; DEADLINE_EXCEEDED: it was reached and needed
// longer than the timeout.
class Connection {
 public:
  struct Options {
    Address address;
    TlsFiles tls;
    // For each call. InfiniteDuration() waits for ever.
    absl::Duration timeout = absl::Seconds(30);
  };

  const Address& address() const { return options_.address; }

 protected:
  // INVALID_ARGUMENT as OpenChannel.
  template <typename Service>
  static absl::StatusOr<std::unique_ptr<Service>> Open(const Options& options) {
    ASSIGN_OR_RETURN(auto channel, OpenChannel(options.address, options.tls));
    auto service = std::make_unique<Service>();
    service->options_ = options;
    service->channel_ = std::move(channel);
    return service;
  }

  // `method` is as in "TuningService/GetTuning". Without `timeout` that of the options.
  template <typename Response>
  absl::StatusOr<Response> Call(const char* method, const google::protobuf::MessageLite& request,
                                std::optional<absl::Duration> timeout = std::nullopt) {
    Response response;
    RETURN_IF_ERROR(CallUnary(std::string("/convtune.v1.") + method, request,
                              timeout.value_or(options_.timeout), &response));
    return response;
  }
  // Calls a list's method page after page and returns all rows in one response:
  // `rows` gives those of a Response*. At most `most` of them.
  template <typename Response, typename Request, typename Rows>
  absl::StatusOr<Response> CallPages(const char* method, Request request, const Rows& rows,
                                     int most = std::numeric_limits<int>::max()) {
    ASSIGN_OR_RETURN(Response all, Call<Response>(method, request));
    while (!all.next_page_token().empty() && rows(&all)->size() < most) {
      request.set_page_token(all.next_page_token());
      ASSIGN_OR_RETURN(Response page, Call<Response>(method, request));
      rows(&all)->MergeFrom(*rows(&page));
      all.set_next_page_token(page.next_page_token());
    }
    if (rows(&all)->size() > most) rows(&all)->DeleteSubrange(most, rows(&all)->size() - most);
    return all;
  }
  absl::Status CallUnary(const std::string& path, const google::protobuf::MessageLite& request,
                         absl::Duration timeout, google::protobuf::MessageLite* response);
  // With the daemon's details under kRpcDetailsUrl. A deadline that ends while
  // there is no connection is not the daemon's.
  absl::Status Result(const grpc::Status& status);
  static void SetTimeout(grpc::ClientContext* context, absl::Duration timeout);

  Options options_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace convtune::client
