// A BatchGetHandler answers BatchGet. It keeps the answers that it made as
// bytes, and gives them again while the tuner says that they hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "proto/base/mutex.h"
#include "server/rpc/services/response_cache.h"
#include "server/tuner/tuner.h"

namespace grpc {
class ByteBuffer;
class CallbackServerContext;
class ServerUnaryReactor;
}  // namespace grpc

namespace convtune::rpc::services {

// A BatchContext is the content of a request beside its problems. Immutable.
struct BatchContext {
  lookup::LookupRequest request;  // valid, without problems
  uint32_t scope = 0;             // of environment and constraints, see ScopeOf; 0: nothing is kept
  uint64_t version = 0;           // Tuner::EnvironmentsVersion
  std::string environment;        // the end of a reply, see EnvironmentBytes, as of `version`
};

// One call of BatchGet.
struct Batch {
  std::shared_ptr<const BatchContext> context;
  // In request order; null ones are still to be asked for.
  std::vector<std::shared_ptr<const CachedRow>> rows;
  // The request to the tuner, for the null rows in their order.
  lookup::LookupRequest missing;
  std::vector<std::string> missing_bytes;  // as they were asked for; empty: nothing is kept
  std::string environment;                 // of the reply, as BatchContext's; empty: the context's

  bool complete() const { return missing.problems.empty(); }

  // The reply's bytes, once no row is null: messages one after the other are one message.
  // Rows that would make it longer than the request allows are left out from the
  // end, and counted in it; the first one never is.
  size_t ReplySize() const;
  void WriteReply(uint8_t* out) const;

 private:
  // The number and the size of the reply's rows, and the message behind them.
  struct Shape {
    size_t rows = 0;
    size_t row_bytes = 0;
    std::string unanswered;  // a BatchGetResponse with that alone
  };
  Shape MakeShape() const;
  const std::string& EnvironmentOfReply() const {
    return environment.empty() ? context->environment : environment;
  }
};

// Thread-safe.
class BatchGetHandler {
 public:
  // `tuner` outlives the handler.
  explicit BatchGetHandler(tuner::Tuner* tuner);

  // Answers one call: at once where all is ready, else when the tuner calls
  // back; until then it takes memory, but no thread. A caller that cancels or
  // goes away abandons its look-up; one whose deadline ends leaves its work
  // queued. The handler outlives the server. The reactor frees itself.
  grpc::ServerUnaryReactor* Handle(grpc::CallbackServerContext* context, const grpc::ByteBuffer* in,
                                   grpc::ByteBuffer* out);

  // The steps of Handle, from bytes to bytes.
  //
  // Finds what is ready. Nullopt: the request has to be read and validated as a
  // whole, be it to say what is wrong with it; then see Whole.
  std::optional<Batch> FindReady(std::string_view request);
  // A request that was read as a whole: all is to be asked for.
  static Batch Whole(lookup::LookupRequest request);
  // Fills the null rows with the tuner's answers to `missing`, and keeps them.
  void Complete(const lookup::LookupResponse& response, Batch* batch);

 private:
  std::shared_ptr<const BatchContext> ContextOf(const std::string& rest);
  // Nullptr if `rest` is not valid, the environment is not known, or the program
  // does not fit it.
  std::shared_ptr<const BatchContext> MakeContext(const std::string& rest);
  // The number by which the cache knows an environment and constraints, given as one text.
  uint32_t ScopeOf(const std::string& text);
  // The end of a reply: the environment, and the age that was demanded.
  std::string EnvironmentBytes(const std::string& text, const jobs::Demand& demand) const;

  tuner::Tuner* const tuner_;
  ResponseCache cache_;
  Mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<const BatchContext>> contexts_
      GUARDED_BY(mutex_);  // by the request's bytes
  absl::flat_hash_map<std::string, uint32_t> scopes_ GUARDED_BY(mutex_);
  uint32_t last_scope_ GUARDED_BY(mutex_) = 0;
};

}  // namespace convtune::rpc::services
