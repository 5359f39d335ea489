// A BundleExport makes a bundle of the tuner's tunings, piece by piece.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "db/bundle/bundle_writer.h"
#include "server/tuner/tuner.h"

namespace convtune::rpc::services {

// Not thread-safe. Holds a page of keys and one piece, no more.
class BundleExport {
 public:
  // `environment` as in Tuner::ListTunings. `tuner` outlives it.
  // Without an environment it has those of all; those of simulated GPUs only if asked for.
  BundleExport(tuner::Tuner* tuner, std::string environment, bool with_samples,
               bool with_simulated);

  // Gives the next bytes, at least a few hundred KiB until the end; empty at
  // the end. DATA_LOSS: a row of the database is damaged.
  absl::StatusOr<std::string> NextPiece();

 private:
  absl::Status AddNext();
  absl::Status NextPage();

  tuner::Tuner* const tuner_;
  const bool with_simulated_;
  const std::string environment_;
  std::vector<tuner::EnvironmentInfo> known_;
  lookup::TuningPage page_;
  size_t next_ = 0;  // in page_
  bool finished_ = false;
  std::string piece_;
  db::bundle::BundleWriter writer_;
};

}  // namespace convtune::rpc::services
