// A closed loop of clients against one gRPC method.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <string>

#include "absl/time/time.h"

namespace convtune::bench {

inline constexpr char kBatchGet[] = "/convtune.v1.TuningService/BatchGet";

struct LoadResult {
  double calls_per_second = 0;
  double p50_us = 0;
  double p99_us = 0;
};

// One call, waited for; ends the program with the error if it fails.
grpc::ByteBuffer CallOnce(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                          const grpc::ByteBuffer& request);

// `clients` callers, each of which calls again as soon as it is answered, over
// one channel for `duration`. Ends the program at a call that fails.
LoadResult RunLoad(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                   const grpc::ByteBuffer& request, int clients, absl::Duration duration);

}  // namespace convtune::bench
