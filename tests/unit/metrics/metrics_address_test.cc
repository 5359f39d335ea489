#include "proto/monitoring/metrics_server.h"

#include <gtest/gtest.h>

namespace convtune::metrics {
namespace {

TEST(MetricsAddress, TakesAddressesWithAPort) {
  for (const char* text : {"", "127.0.0.1:9464", "0.0.0.0:0", "[::1]:9464", "[::]:65535"}) {
    EXPECT_TRUE(ValidateMetricsAddress(text).ok()) << text;
  }
}

TEST(MetricsAddress, RefusesEverythingElse) {
  for (const char* text :
       {"9464", ":9464", "localhost:9464", "127.0.0.1", "127.0.0.1:", "::1:9464", "127.0.0.1:65536",
        "127.0.0.1:-1", "127.0.0.1:9464,8080", "127.0.0.1:9464s", "[]:1", "unix:/tmp/s"}) {
    EXPECT_FALSE(ValidateMetricsAddress(text).ok()) << text;
  }
}

}  // namespace
}  // namespace convtune::metrics
