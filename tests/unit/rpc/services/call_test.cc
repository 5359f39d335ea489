#include "server/rpc/services/call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "server/rpc/http2/limits.h"

namespace convtune::rpc::services {
namespace {

// The bytes are not written, so that they take no memory.
grpc::Status Reply(int size, grpc::ByteBuffer* bytes) {
  return WriteReply(
      static_cast<size_t>(size), [](uint8_t*) {}, bytes);
}

TEST(Call, RepliesThatNobodyReadsAreBounded) {
  constexpr int kLargest = http2::kMaxReplyBytes;
  std::vector<grpc::ByteBuffer> unread(http2::kMaxUnreadBytes / kLargest);
  for (grpc::ByteBuffer& bytes : unread) ASSERT_TRUE(Reply(kLargest, &bytes).ok());

  grpc::ByteBuffer next;
  const grpc::Status refused = Reply(1 << 20, &next);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(),
              testing::HasSubstr("callers have not read 536870912 bytes of replies"));
  EXPECT_TRUE(Reply(1000, &next).ok()) << "one answer";

  unread.pop_back();
  EXPECT_TRUE(Reply(1 << 20, &next).ok()) << "there is room again";
}

}  // namespace
}  // namespace convtune::rpc::services
