// BatchGet from bytes to bytes. Knows no gRPC.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "server/rpc/batch_wire.h"
#include "server/rpc/ready_rows.h"
#include "server/tuner/tuner.h"

namespace convtune {

// What a request says beside its problems. Immutable.
struct BatchContext {
  lookup::LookupRequest request;  // valid, without problems
  bool profile = false;           // the environment is one
  uint32_t rules = 0;             // see ReadyRows; 0: nothing is kept
  uint64_t version = 0;           // Tuner::EnvironmentsVersion
  std::string environment;        // a v1::Environment, as of `version`
};

// One call of BatchGet.
struct Batch {
  std::shared_ptr<const BatchContext> context;
  std::vector<ReplyRow> rows;  // in request order; empty ones are still to be asked for
  // What the tuner has to be asked, for the empty rows in their order.
  lookup::LookupRequest missing;
  std::vector<std::string> missing_bytes;  // as they were asked for; empty: nothing is kept

  bool complete() const { return missing.problems.empty(); }
};

// Keeps the answers that it made as bytes, and gives them again while the tuner
// says that they hold. Thread-safe.
class BatchAnswerer {
 public:
  // Both outlive it.
  BatchAnswerer(tuner::Tuner* tuner, const Clock* clock);

  // Finds what is ready. Nullopt: the request has to be read and validated as a
  // whole, be it to say what is wrong with it; then see Whole.
  std::optional<Batch> Prepare(std::string_view request);
  // A request that was read as a whole: all is to be asked for.
  static Batch Whole(lookup::LookupRequest request);
  // Fills the empty rows with the tuner's answers to `missing`, and keeps them.
  void Complete(const lookup::LookupResponse& response, Batch* batch);

  // The reply's environment. `response`: what the tuner said, if it was asked.
  std::string EnvironmentOf(const Batch& batch, const lookup::LookupResponse* response) const;
  absl::Time Now() const { return clock_->Now(); }

 private:
  std::shared_ptr<const BatchContext> ContextOf(const std::string& rest);
  // Nullptr if `rest` is not valid, or the environment not known.
  std::shared_ptr<const BatchContext> MakeContext(const std::string& rest);
  uint32_t RulesOf(const std::string& text);

  tuner::Tuner* const tuner_;
  const Clock* const clock_;
  ReadyRows ready_;
  Mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<const BatchContext>> contexts_
      GUARDED_BY(mutex_);  // by the request's bytes
  absl::flat_hash_map<std::string, uint32_t> rules_ GUARDED_BY(mutex_);
  uint32_t last_rules_ GUARDED_BY(mutex_) = 0;
};

}  // namespace convtune
