#include "tests/bench/load.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "absl/time/clock.h"
#include "tests/bench/figure.h"

namespace convtune::bench {
namespace {

struct Caller {
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
  grpc::ByteBuffer reply;
  grpc::Status status;
  absl::Time start;
};

void Start(grpc::GenericStub* stub, grpc::CompletionQueue* queue, const std::string& method,
           const grpc::ByteBuffer& request, Caller* caller) {
  caller->context = std::make_unique<grpc::ClientContext>();
  caller->reply.Clear();
  caller->start = absl::Now();
  caller->reader = stub->PrepareUnaryCall(caller->context.get(), method, request, queue);
  caller->reader->StartCall();
  caller->reader->Finish(&caller->reply, &caller->status, caller);
}

void DieUnless(const grpc::Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "call failed: %s\n", status.error_message().c_str());
    std::exit(1);
  }
}

}  // namespace

grpc::ByteBuffer CallOnce(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                          const grpc::ByteBuffer& request) {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  Caller caller;
  Start(&stub, &queue, method, request, &caller);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  DieUnless(caller.status);
  return caller.reply;
}

LoadResult RunLoad(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                   const grpc::ByteBuffer& request, int clients, absl::Duration duration) {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  std::vector<Caller> callers(static_cast<size_t>(clients));
  std::vector<double> latencies_us;
  const absl::Time start = absl::Now();
  for (Caller& caller : callers) {
    Start(&stub, &queue, method, request, &caller);
  }
  int running = clients;
  absl::Time last = start;
  while (running > 0) {
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    auto* caller = static_cast<Caller*>(tag);
    DieUnless(caller->status);
    last = absl::Now();
    latencies_us.push_back(absl::ToDoubleMicroseconds(last - caller->start));
    if (last - start < duration) {
      Start(&stub, &queue, method, request, caller);
    } else {
      --running;
    }
  }
  return {static_cast<double>(latencies_us.size()) / absl::ToDoubleSeconds(last - start),
          Quantile(latencies_us, 0.5), Quantile(latencies_us, 0.99)};
}

}  // namespace convtune::bench
