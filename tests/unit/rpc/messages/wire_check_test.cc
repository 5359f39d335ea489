#include "server/rpc/messages/wire_check.h"

#include <gtest/gtest.h>

#include <string>

#include "convtune/v1/tuning_service.pb.h"

namespace convtune::rpc::messages {
namespace {

// Field 2 (problems) that holds field 2 (text) with these bytes.
std::string WithText(const std::string& text) {
  std::string inner = "\x12";
  inner += static_cast<char>(text.size());
  inner += text;
  std::string outer = "\x12";
  outer += static_cast<char>(inner.size());
  return outer + inner;
}

std::vector<Violation> Explain(const std::string& bytes) {
  return ExplainUnparsable(*v1::BatchGetRequest::descriptor(), bytes);
}

TEST(ExplainUnparsable, NamesTheStringThatIsNotUtf8) {
  const auto violations = Explain(WithText("fwd") + WithText("f\xFFwd"));
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].field, "problems[1].text");
  EXPECT_EQ(violations[0].rule, "must be valid UTF-8");
}

TEST(ExplainUnparsable, NamesTheTypeOfBytesThatAreNoMessage) {
  const auto violations = Explain("\xFF\xFF\xFF");
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].field, "request");
  EXPECT_EQ(violations[0].rule, "must be a well-formed convtune.v1.BatchGetRequest");
}

TEST(ExplainUnparsable, NamesTheFieldOfABrokenInnerMessage) {
  const auto violations = Explain(std::string("\x12\x01\xFF", 3));
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].field, "problems[0]");
}

}  // namespace
}  // namespace convtune::rpc::messages
