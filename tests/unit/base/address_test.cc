#include "proto/base/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace convtune {
namespace {

TEST(AddressTest, ReadsSocketsAndHosts) {
  EXPECT_EQ(Address::Parse("unix:/a/b")->target, "/a/b");
  EXPECT_EQ(Address::Parse("unix:///a/b")->target, "/a/b");
  EXPECT_EQ(Address::Parse("unix:rel")->target, "rel");
  EXPECT_FALSE(Address::Parse("gpu-node:50051")->unix_socket);
  EXPECT_EQ(Address::Parse("[::1]:50051")->target, "[::1]:50051");
  EXPECT_EQ(Address::Parse("[::1]:50051")->host, "::1");
  EXPECT_EQ(Address::Parse("[::1]:50051")->port, "50051");
  EXPECT_EQ(Address::Parse("unix:///a/b")->ToText(), "unix:/a/b");
}

TEST(AddressTest, RefusesAnythingElseWithTheRule) {
  const std::string no_form = "must be unix:PATH or HOST:PORT";
  const std::string no_path = "the socket's path must have 1 to 107 bytes";
  const std::string no_host = "the host must be a name, an IPv4 address or an IPv6 one in brackets";
  const std::string no_port = "the port must be 1 to 65535";
  for (const auto& [text, rule] :
       std::vector<std::pair<std::string, std::string>>{{"", no_form},
                                                        {"/a/b", no_form},
                                                        {"host", no_form},
                                                        {":1", no_form},
                                                        {"unix:", no_path},
                                                        {"unix:/" + std::string(107, 'a'), no_path},
                                                        {"::1:5", no_host},
                                                        {"a b:5", no_host},
                                                        {"[]:5", no_host},
                                                        {"a=b:5", no_host},
                                                        {"dns:///host:5", no_host},
                                                        {"host:", no_port},
                                                        {"host:0", no_port},
                                                        {"host:-1", no_port},
                                                        {"host:65536", no_port},
                                                        {"host:x", no_port}}) {
    const absl::Status status = Address::Parse(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(rule)) << text;
  }
}

}  // namespace
}  // namespace convtune
