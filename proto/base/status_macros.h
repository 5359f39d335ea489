// Macros that return a status that is not OK from the enclosing function.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns the status from the enclosing function if it is not OK.
#define RETURN_IF_ERROR(expr)                 \
  do {                                        \
    ::absl::Status convtune_status_ = (expr); \
    if (!convtune_status_.ok()) {             \
      return convtune_status_;                \
    }                                         \
  } while (false)

#define CONVTUNE_CONCAT_INNER(a, b) a##b
#define CONVTUNE_CONCAT(a, b) CONVTUNE_CONCAT_INNER(a, b)

// Assigns the value of a StatusOr, or returns its status.
#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_IMPL(CONVTUNE_CONCAT(convtune_statusor_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_IMPL(statusor, lhs, expr) \
  auto statusor = (expr);                          \
  if (!statusor.ok()) {                            \
    return std::move(statusor).status();           \
  }                                                \
  lhs = *std::move(statusor)
