#include "tests/bench/ready_reply_server.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "convtune/v1/tuning_service.grpc.pb.h"

namespace convtune::bench {
namespace {

class ReadyReply final
    : public v1::TuningService::WithRawCallbackMethod_BatchGet<v1::TuningService::Service> {
 public:
  explicit ReadyReply(const std::string& reply) : slice_(reply), reply_(&slice_, 1) {}

  grpc::ServerUnaryReactor* BatchGet(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* in, grpc::ByteBuffer* out) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    v1::BatchGetRequest request;
    grpc::ByteBuffer shared = *in;
    grpc::ProtoBufferReader reader(&shared);
    const bool read = request.ParseFromZeroCopyStream(&reader);
    *out = reply_;
    reactor->Finish(read ? grpc::Status::OK
                         : grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "unreadable"));
    return reactor;
  }

 private:
  const grpc::Slice slice_;
  const grpc::ByteBuffer reply_;
};

}  // namespace

int ServeReadyReply(const std::string& address, const std::string& reply) {
  ReadyReply service(reply);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(64 << 20);
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    std::fprintf(stderr, "cannot listen on %s\n", address.c_str());
    return 1;
  }
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  server->Shutdown();
  return 0;
}

}  // namespace convtune::bench
