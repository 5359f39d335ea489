// Answers from the snapshot file, where no daemon gives any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/include/convtune/resolver.h"
#include "db/snapshot/snapshot.h"

namespace convtune::client {

// One file, read and verified as a whole. Immutable: thread-safe.
class SnapshotAnswers {
 public:
  // `folder` is where the daemon publishes. NOT_FOUND without a file;
  // FAILED_PRECONDITION names the path and what is wrong with it, or, if
  // `environment` is empty and the file has several, says that one must be named.
  static absl::StatusOr<std::unique_ptr<SnapshotAnswers>> Open(const std::string& folder,
                                                               const std::string& environment);

  // Of the promoted release, whatever share of processes a canary has. What is
  // not found says why.
  Result Find(const std::string& problem_text, const Constraints& constraints) const;

 private:
  SnapshotAnswers() = default;

  std::vector<uint64_t> bytes_;  // aligned as the view wants it
  snapshot::SnapshotView view_;
  const snapshot::SnapshotSection* section_ = nullptr;
  std::string environment_;
};

}  // namespace convtune::client
