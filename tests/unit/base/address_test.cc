#include "proto/base/address.h"

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

TEST(AddressTest, RefusesAnythingElse) {
  for (const char* text : {"", "unix:", "/a/b", "host", "host:", ":1", "host:0", "host:x", "::1:5",
                           "a b:5", "[]:5", "a=b:5"}) {
    EXPECT_FALSE(Address::Parse(text).ok()) << text;
  }
}

}  // namespace
}  // namespace convtune
