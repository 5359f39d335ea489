// SnapshotAnswers answer from the snapshot file, where no daemon answers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/resolver_convert.h"
#include "db/snapshot/snapshot_file.h"
#include "proto/model/environment.h"
#include "proto/model/problem/conv_problem.h"

namespace convtune::client {

// One file, read and verified as a whole. Immutable: thread-safe.
class SnapshotAnswers {
 public:
  // A Part holds the choices of the promoted release for one environment. Choices of a
  // canary are left out.
  struct Part {
    const snapshot::SnapshotSection* section;
    convtune::Environment environment;
  };

  // `folder` is where the daemon publishes. FAILED_PRECONDITION
  // names the path and what is wrong with it.
  static absl::StatusOr<std::unique_ptr<SnapshotAnswers>> Open(const std::string& folder);

  // The part whose environment has this name or text, any if that is empty, and
  // which `program` fits. NOT_FOUND if the program fits none of them;
  // FAILED_PRECONDITION if no environment has the name, or several are left.
  absl::StatusOr<const Part*> Choose(const std::string& environment,
                                     const convtune::Environment& program) const;

  // `part` is one of this file. A miss says why.
  v1::BatchGetResult Find(const Part& part, const ConvProblem& problem, const Terms& terms) const;

 private:
  SnapshotAnswers() = default;

  snapshot::SnapshotFile file_;
  std::string path_;
  std::vector<Part> parts_;
};

}  // namespace convtune::client
