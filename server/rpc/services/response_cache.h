// A ResponseCache keeps rows of BatchGet's replies as bytes.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "proto/base/mutex.h"
#include "server/lookup/lookup_request.h"

namespace convtune::rpc::services {

// An answer to one problem as it goes into a reply. Immutable.
struct CachedRow {
  std::string bytes;          // a BatchGetResponse with this result alone
  lookup::ChangeStamp stamp;  // while it is unchanged, the row may be given again
};

// Finds rows by the bytes in which they were asked for, so that a problem that was asked for before
// is neither read nor validated again. Thread-safe.
class ResponseCache {
 public:
  // Keeps at most about `max_bytes`. Where a part of the keys has used up its share, all rows of
  // that part are dropped.
  explicit ResponseCache(size_t max_bytes) : shard_bytes_(max_bytes / kShards) {}

  // nullptr if there is none.
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

}  // namespace convtune::rpc::services
