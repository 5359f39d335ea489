// A BatchGetHandler answers BatchGet. It keeps the answers that it made as
// bytes, and gives them again until what is known of their problems changes.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "proto/base/mutex.h"
#include "server/lookup/lookups.h"
#include "server/tuner/tuner.h"

namespace grpc {
class ByteBuffer;
class CallbackServerContext;
class ServerUnaryReactor;
}  // namespace grpc

namespace convtune::rpc::services {

// An answer to one problem as it goes into a reply. Immutable.
struct CachedRow {
  std::string bytes;          // a BatchGetResponse with this result alone
  lookup::ChangeStamp stamp;  // while it is unchanged, the row may be given again
};

// A ResponseCache keeps rows of replies as bytes, and finds them by the bytes in which they were
// asked for, so that a problem that was asked for before is neither read nor validated again.
// Thread-safe.
class ResponseCache {
 public:
  // Keeps at most about `max_bytes`. Where a part of the keys has used up its share, all rows of
  // that part are dropped.
  explicit ResponseCache(size_t max_bytes) : shard_bytes_(max_bytes / kShards) {}

  // The row that is kept under the key; nullptr if no row is.
  std::shared_ptr<const CachedRow> Find(std::string_view key);
  void Put(std::string_view key, std::shared_ptr<const CachedRow> row);

 private:
  using Map = absl::flat_hash_map<std::string, std::shared_ptr<const CachedRow>>;
  struct Shard {
    Mutex mutex;
    Map rows GUARDED_BY(mutex);
    size_t bytes GUARDED_BY(mutex) = 0;
  };

  static constexpr size_t kShards = 16;

  // By the highest bits of the hash: flat_hash_map uses the others.
  Shard& ShardOf(size_t hash) { return shards_[(hash >> 60) % kShards]; }

  const size_t shard_bytes_;
  std::array<Shard, kShards> shards_;
};

// BatchTerms are a request without its problems. Immutable.
struct BatchTerms {
  lookup::LookupRequest request;  // valid, without problems
  size_t max_reply_bytes = 0;
  // Tells these terms and their environment from others in the cache; 0: their answers are
  // not kept.
  uint32_t number = 0;
  uint64_t version = 0;          // Tuner::EnvironmentsVersion
  std::string environment_text;  // empty if `number` is 0
  std::string reply_end;         // see ReplyEnd, as of `version`
};

// One call of BatchGet.
struct Batch {
  std::shared_ptr<const BatchTerms> terms;
  // In request order; the tuner has to be asked for those that are nullptr.
  std::vector<std::shared_ptr<const CachedRow>> rows;
  // The request to the tuner, for the null rows in their order.
  lookup::LookupRequest missing;
  std::vector<std::string> missing_bytes;  // as they were asked for
  std::string reply_end;                   // empty: the terms'

  bool complete() const { return missing.problems.empty(); }

  // The reply, once no row is null: messages one after the other are one message. Points into
  // the batch. Rows that would make it longer than the request allows are left out from the
  // end, and counted in it; the first one never is.
  std::vector<std::string_view> Reply();

  std::string unanswered;  // the reply's count of rows that are left out, as a BatchGetResponse
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
  // Finds what is ready. nullopt if the request is not valid.
  std::optional<Batch> FindReady(std::string_view request);
  // Fills the null rows with the tuner's answers to `missing`, and keeps them.
  void Complete(lookup::LookupResponse response, Batch* batch);

 private:
  // The terms in the bytes of a request without problems. nullptr if they are not valid.
  std::shared_ptr<const BatchTerms> TermsOf(const std::string& bytes);
  // Makes them anew; `before` are those of the same bytes and an older version, or nullptr.
  std::shared_ptr<const BatchTerms> MakeTerms(const std::string& bytes, const BatchTerms* before);
  // The end of a reply: the environment, and the fields that are known.
  std::string ReplyEnd(const std::string& environment_text) const;

  tuner::Tuner* const tuner_;
  ResponseCache cache_;
  Mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<const BatchTerms>> terms_
      GUARDED_BY(mutex_);  // by their bytes
  std::atomic<uint32_t> last_number_{0};
};

}  // namespace convtune::rpc::services
