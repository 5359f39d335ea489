// A Trace writes everything that a worker measured to a file, for people who want
// more than the daemon keeps. The format is in TRACE.md.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/worker/backend.h"

namespace convtune::worker {

// Appends to a file, each line in one write, so that several workers may share
// it. Not thread-safe.
class Trace {
 public:
  static constexpr int kFormatVersion = 1;
  // The environment variable that names the file.
  static constexpr char kVariable[] = "CONVTUNE_TRACE";

  // Null if the variable is not set or empty. INVALID_ARGUMENT, which names the
  // variable, if its value is no absolute path or cannot be written to.
  static absl::StatusOr<std::unique_ptr<Trace>> FromEnvironment();
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // A line each. One that cannot be written is said on stderr and is the last:
  // tuning goes on without a trace.
  void PutWorker(const Environment& environment, const Provenance& provenance);
  void PutProblem(const std::string& text);
  void PutPrepared(int index, const CandidateId& id,
                   const absl::StatusOr<worker::v1::Prepared>& prepared, absl::Duration took);
  void PutChecked(int index, const CandidateId& id,
                  const absl::StatusOr<worker::v1::Checked>& checked);
  void PutSample(int index, const CandidateId& id, int round, const worker::v1::Measure& how,
                 const absl::StatusOr<TimedRun>& run);
  void PutConditions(const ConditionsLook& look);

 private:
  Trace(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  void Put(const char* kind, nlohmann::json fields);

  const std::string path_;
  int fd_;  // -1 once a line could not be written
};

}  // namespace convtune::worker
