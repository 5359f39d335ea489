#include "server/rpc/services/call.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "grpcpp/support/slice.h"
#include "proto/base/strings.h"
#include "proto/monitoring/log.h"
#include "server/rpc/http2/limits.h"

namespace convtune::rpc::services {
namespace {

// A reply of a few answers is never refused: its call takes gRPC as much memory.
constexpr size_t kSmallReply = 16 << 10;
std::atomic<int64_t> unread_bytes{0};

// Counted until gRPC has put the bytes into the socket, or the call has ended.
grpc::Slice CountedSlice(size_t size) {
  auto* const memory = new uint8_t[size];
  unread_bytes += static_cast<int64_t>(size);
  return {memory, size, [](void* bytes, size_t length) {
            delete[] static_cast<uint8_t*>(bytes);
            unread_bytes -= static_cast<int64_t>(length);
          }};
}

}  // namespace

grpc::Status ReadMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message* message) {
  // An empty message may come as no buffer at all.
  if (!bytes.Valid() || bytes.Length() == 0) {
    message->Clear();
    return grpc::Status::OK;
  }
  grpc::ByteBuffer shared = bytes;
  grpc::ProtoBufferReader reader(&shared);
  if (reader.status().ok() && message->ParseFromZeroCopyStream(&reader)) {
    return grpc::Status::OK;
  }
  return messages::ToGrpcStatus(std::vector<Violation>{
      {"request", Concat("must be a well-formed ", message->GetDescriptor()->full_name(),
                         " with texts in UTF-8")}});
}

grpc::Status WriteReply(size_t size, const std::function<void(uint8_t*)>& write,
                        grpc::ByteBuffer* bytes) {
  if (size > static_cast<size_t>(http2::kMaxReplyBytes)) {
    return messages::ToGrpcStatus(absl::ResourceExhaustedError(
        absl::StrCat("the reply would have ", size, " bytes, more than ", http2::kMaxReplyBytes,
                     "; ask for fewer problems")));
  }
  const bool counted = size > kSmallReply;
  grpc::Slice slice = counted ? CountedSlice(size) : grpc::Slice(size);
  const int64_t unread = unread_bytes;
  if (counted && unread > http2::kMaxUnreadBytes) {
    return messages::ToGrpcStatus(absl::ResourceExhaustedError(
        absl::StrCat("callers have not read ", unread - static_cast<int64_t>(size),
                     " bytes of replies; read yours, ask for fewer problems, or ask again later")));
  }
  // Nobody else has the slice yet.
  write(const_cast<uint8_t*>(slice.begin()));
  *bytes = grpc::ByteBuffer(&slice, 1);
  return grpc::Status::OK;
}

grpc::Status WriteMessage(const google::protobuf::Message& message, grpc::ByteBuffer* bytes) {
  return WriteReply(
      message.ByteSizeLong(),
      [&message](uint8_t* out) { message.SerializeWithCachedSizesToArray(out); }, bytes);
}

grpc::Status ExceptionStatus(std::string_view method, const char* what) {
  log::Error("$0 threw: $1", method.substr(method.rfind('/') + 1), what);
  return messages::ToGrpcStatus(absl::InternalError("internal error; see the daemon's log"));
}

void RawService::Add(std::string_view method, Type type, grpc::internal::MethodHandler* handler) {
  paths_.push_back(Concat("/", name_, "/", method));
  AddMethod(new grpc::internal::RpcServiceMethod(paths_.back().c_str(), type, nullptr));
  MarkMethodRawCallback(static_cast<int>(paths_.size()) - 1, handler);
}

}  // namespace convtune::rpc::services
