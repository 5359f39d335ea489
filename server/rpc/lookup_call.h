// BatchGet.
#pragma once

#include "grpcpp/support/server_callback.h"
#include "server/rpc/batch_answerer.h"
#include "server/tuner/tuner.h"

namespace convtune {

// Answers one BatchGet: at once where all is ready, else when the tuner calls
// back; until then it takes memory, but no thread. A caller that cancels or
// goes away abandons its look-up; one whose deadline ends leaves its work
// queued. `tuner` and `answerer` outlive the server. The reactor frees itself.
grpc::ServerUnaryReactor* HandleBatchGet(tuner::Tuner* tuner, BatchAnswerer* answerer,
                                         grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* in, grpc::ByteBuffer* out);

}  // namespace convtune
