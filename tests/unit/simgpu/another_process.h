// Runs code that destroys the simulated GPU's context, which cannot be mended, in a
// process of its own.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

// Fails where an expectation of `statement` does.
#define IN_ANOTHER_PROCESS(statement)                     \
  EXPECT_EXIT(                                            \
      {                                                   \
        statement;                                        \
        std::exit(::testing::Test::HasFailure() ? 1 : 0); \
      },                                                  \
      ::testing::ExitedWithCode(0), "")
