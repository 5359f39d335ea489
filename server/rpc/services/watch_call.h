// The handler of WatchTuningJob.
#pragma once

#include "grpcpp/support/server_callback.h"
#include "server/tuner/tuner.h"

namespace convtune::rpc::services {

// Streams one job's states. Changes that come faster than the caller reads are
// merged into the newest; the last message is always the ended job. Takes no
// thread. `tuner` outlives the server. The reactor frees itself.
grpc::ServerWriteReactor<grpc::ByteBuffer>* HandleWatchTuningJob(
    tuner::Tuner* tuner, grpc::CallbackServerContext* context, const grpc::ByteBuffer* in);

}  // namespace convtune::rpc::services
