// Server reflection, version 1: describes the API to clients that have not its
// files, with the comments of its .proto files, which gRPC's own version 1alpha
// leaves out.
#pragma once

#include <memory>

namespace grpc {
class Service;
}  // namespace grpc

namespace convtune::rpc {

std::unique_ptr<grpc::Service> NewReflectionService();

}  // namespace convtune::rpc
