// A Client calls the methods of the daemon at an Address. gRPC stays inside client/cpp: its
// headers are included by client.cc only.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "convtune/v1/bundle_service.pb.h"
#include "convtune/v1/maintenance_service.pb.h"
#include "convtune/v1/tuning_service.pb.h"
#include "proto/base/address.h"
#include "proto/base/status_macros.h"
#include "proto/model/violation.h"

namespace grpc {
class Channel;
class Status;
}  // namespace grpc

namespace convtune::client {

// PEM files of a mutual TLS connection. Value type.
struct TlsFiles {
  std::string ca;    // certificates that the daemon's is checked against
  std::string cert;  // the client's certificate chain
  std::string key;   // its private key
};

// Payload under which Client keeps the error's google.rpc.Status.
inline constexpr char kRpcDetailsUrl[] = "type.googleapis.com/google.rpc.Status";

// The field violations of google.rpc.BadRequest; empty if there are none.
std::vector<Violation> ViolationsOf(const absl::Status& status);

// Where an error refuses nothing but single problems of a request of `count`: the places of these
// problems, each with what is wrong, "problems[3].text: must be given". Empty for any other error.
std::vector<std::pair<size_t, std::string>> RefusedProblems(const absl::Status& status,
                                                            size_t count);
// Counts problems into requests, of which each has at most 10,000 and is below the daemon's 4 MiB.
class RequestSplitter {
 public:
  // True if the next problem, whose text has this size, is the first of a request.
  bool Begins(size_t text_bytes) {
    const size_t more = text_bytes + 16;              // tags and lengths around the text
    constexpr size_t kMost = (4 << 20) - (64 << 10);  // with room for the other fields
    const bool begins = problems_ == 0 || problems_ == 10'000 || bytes_ + more > kMost;
    problems_ = begins ? 1 : problems_ + 1;
    bytes_ = begins ? more : bytes_ + more;
    return begins;
  }

 private:
  size_t problems_ = 0;
  size_t bytes_ = 0;
};
// True if the error has a daemon's details. An UNAVAILABLE of a daemon, such as one that is
// stopping, has some; one of the connection has none.
bool IsFromDaemon(const absl::Status& status);

// A Client's calls block. It connects at the first of them. Thread-safe: calls may run side by
// side.
//
// Every call returns the daemon's error with its code, and with its details
// under kRpcDetailsUrl. UNAVAILABLE: no daemon could be reached, or it is
// stopping; DEADLINE_EXCEEDED: it was reached and needed longer than the timeout.
class Client {
 public:
  struct Options {
    Address address;
    TlsFiles tls;
    // For each call. InfiniteDuration() waits for ever.
    absl::Duration timeout = absl::Seconds(30);
  };

  // A Doubt is a moment of a call, `after` its begin. If no answer is there by then, `enough` is
  // called, once and on the caller's thread; if it returns true, the call returns CANCELLED.
  struct Doubt {
    absl::Duration after;
    std::function<bool()> enough;
  };

  // TCP needs all three files of `tls`; a unix socket needs none and ignores them. INVALID_ARGUMENT
  // names the file that is missing or unreadable. Received messages may have up to 256 MiB.
  static absl::StatusOr<std::unique_ptr<Client>> Create(const Options& options);

  const Address& address() const { return options_.address; }

  // Calls the method that takes such a request, of whichever service: no two methods take the same.
  // REQUIRES: `Response` is what it returns. Without `timeout` that of the options.
  template <typename Response>
  absl::StatusOr<Response> Call(const google::protobuf::Message& request,
                                std::optional<absl::Duration> timeout = std::nullopt) {
    Response response;
    RETURN_IF_ERROR(CallMethod(request, timeout.value_or(options_.timeout), &response));
    return response;
  }
  // Calls a list's method page after page. Returns the rows of all pages in one response, at most
  // `most` of them.
  template <typename Response, typename Request>
  absl::StatusOr<Response> CallPages(Request request, int most = std::numeric_limits<int>::max()) {
    Response all;
    RETURN_IF_ERROR(ReadPages(most, &request, &all));
    return all;
  }

  // Returns an outcome for each problem, in as many replies as it takes. `timeout` replaces the one
  // of the options, as a look-up may wait for a worker. UNIMPLEMENTED: the daemon does not know a
  // field of the request. INTERNAL: it gave another number of outcomes.
  absl::StatusOr<v1::BatchGetResponse> BatchGet(const v1::BatchGetRequest& request,
                                                absl::Duration timeout,
                                                const std::optional<Doubt>& doubt = std::nullopt);
  // Calls `on_state` for each state that the daemon sends, on this thread,
  // and returns the last one when the job has ended. No timeout.
  absl::StatusOr<v1::TuningJob> WatchTuningJob(
      const v1::WatchTuningJobRequest& request,
      const std::function<void(const v1::TuningJob&)>& on_state);
  // Calls `take` with each piece of the bundle, on this thread; an error of it
  // ends the call and is returned.
  absl::Status ExportBundle(const v1::ExportBundleRequest& request,
                            const std::function<absl::Status(const std::string&)>& take,
                            absl::Duration timeout);
  // Sends the pieces that `next` gives, each at most 1 MiB, until an empty one;
  // an error of it ends the call and is returned.
  absl::StatusOr<v1::ImportBundleResponse> ImportBundle(
      const std::function<absl::StatusOr<std::string>()>& next, absl::Duration timeout);

  // grpc.health.v1.Health/Check: true if `service` is SERVING. NOT_FOUND: the
  // daemon knows no such service.
  absl::StatusOr<bool> IsServing(const std::string& service);

  // Sleeps between two tries at a daemon that does not answer. Meanwhile it asks for a connection:
  // without a call gRPC works on one every five seconds alone.
  void Pause(absl::Duration time);

 private:
  Client(Options options, std::shared_ptr<grpc::Channel> channel)
      : options_(std::move(options)), channel_(std::move(channel)) {}

  absl::Status CallMethod(const google::protobuf::Message& request, absl::Duration timeout,
                          google::protobuf::Message* response);
  absl::Status ReadPages(int most, google::protobuf::Message* request,
                         google::protobuf::Message* all);
  absl::Status CallUnary(const std::string& path, const google::protobuf::Message& request,
                         absl::Duration timeout, google::protobuf::Message* response,
                         bool waits_for_connection = false,
                         const std::optional<Doubt>& doubt = std::nullopt);
  // The status of a call, with the daemon's details under kRpcDetailsUrl. UNAVAILABLE where the
  // deadline ended while there was no connection.
  absl::Status Result(const grpc::Status& status);

  const Options options_;
  const std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace convtune::client
