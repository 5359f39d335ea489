#include "proto/base/variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <map>

namespace convtune {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// What is said with these variables in the environment.
std::vector<std::string> With(const std::map<std::string, std::string>& variables) {
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  std::vector<std::string> said = UnknownVariables();
  for (const auto& [name, value] : variables) unsetenv(name.c_str());
  return said;
}

TEST(VariablesTest, AVariableThatNobodyReadsIsSaidWithTheNameThatWasMeant) {
  EXPECT_THAT(With({{"CONVTUNE_ADRESS", "unix:/x"}}),
              ElementsAre("CONVTUNE_ADRESS: no program of convtune reads this; did you mean "
                          "CONVTUNE_ADDRESS?"));
  EXPECT_THAT(With({{"CONVTUNED_CONFG", "/x"}}),
              ElementsAre("CONVTUNED_CONFG: no program of convtune reads this; did you mean "
                          "CONVTUNED_CONFIG?"));
  EXPECT_THAT(With({{"CONVTUNED_LISTEN", "/x"}}),
              ElementsAre("CONVTUNED_LISTEN: no program of convtune reads this; did you mean "
                          "CONVTUNE_LISTEN?"));
  EXPECT_THAT(With({{"CONVTUNE_QQQQQQQQ", "1"}}),
              ElementsAre("CONVTUNE_QQQQQQQQ: no program of convtune reads this"));
}

TEST(VariablesTest, WhatIsReadAndWhatOthersSetIsNotSaid) {
  EXPECT_THAT(With({{"CONVTUNE_ADDRESS", "x"},
                    {"CONVTUNED_CONFIG", "x"},
                    {"CONVTUNE_PRELOAD_POLICY", "x"},
                    {"CONVTUNE_FAKE_SCRIPT", "x"},
                    {"CONVTUNE_TEST_LONG", "x"},
                    {"CONVTUNE_ADRESS", ""},
                    {"CONVTUNERS", "x"}}),
              IsEmpty());
  // Of the services convtune and convtune-metrics.
  EXPECT_THAT(With({{"CONVTUNE_PORT", "tcp://10.0.0.1:7070"},
                    {"CONVTUNE_PORT_7070_TCP", "x"},
                    {"CONVTUNE_PORT_7070_TCP_ADDR", "x"},
                    {"CONVTUNE_SERVICE_HOST", "x"},
                    {"CONVTUNE_SERVICE_PORT", "x"},
                    {"CONVTUNE_SERVICE_PORT_GRPC", "x"},
                    {"CONVTUNE_METRICS_PORT", "x"},
                    {"CONVTUNE_METRICS_PORT_9400_TCP_PROTO", "x"},
                    {"CONVTUNE_METRICS_SERVICE_HOST", "x"}}),
              IsEmpty());
  // Of the service convtuned.
  EXPECT_THAT(With({{"CONVTUNED_PORT", "tcp://10.0.0.1:7070"},
                    {"CONVTUNED_PORT_7070_TCP", "x"},
                    {"CONVTUNED_SERVICE_HOST", "x"},
                    {"CONVTUNED_SERVICE_PORT_GRPC", "x"}}),
              IsEmpty());
}

}  // namespace
}  // namespace convtune
