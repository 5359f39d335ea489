// A ResponseCache keeps rows of BatchGet's replies as bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "proto/base/mutex.h"
#include "server/tuner/tuner.h"

namespace convtune::rpc::services {

// An answer to one problem as it goes into a reply. Immutable.
struct CachedRow {
  std::string bytes;  // a BatchGetResponse with this result alone
  lookup::AnswerSource source;
};

// The most recently used rows, found by the bytes in which a problem was asked
// for: what was validated once is known by them. Whether a row still holds is
// not known here: ask Tuner::StillHolds. Thread-safe.
class ResponseCache {
 public:
  // Keeps at most about `max_bytes`.
  explicit ResponseCache(size_t max_bytes);

  // `scope`: the caller's number of an environment and constraints, which is all that
  // an answer depends on beside its problem. nullptr if there is none.
  std::shared_ptr<const CachedRow> Find(uint32_t scope, std::string_view problem);
  void Put(uint32_t scope, std::string_view problem, std::shared_ptr<const CachedRow> row);

  // About what is kept at present.
  size_t bytes() const;

 private:
  struct View {
    uint64_t hash;
    uint32_t scope;
    std::string_view problem;
  };
  struct Key {
    uint64_t hash;
    uint32_t scope;
    std::string problem;
  };
  struct Hash {
    using is_transparent = void;
    template <typename K>
    size_t operator()(const K& key) const {
      return key.hash;
    }
  };
  struct Equal {
    using is_transparent = void;
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return a.hash == b.hash && a.scope == b.scope && a.problem == b.problem;
    }
  };
  using Map = absl::flat_hash_map<Key, std::shared_ptr<const CachedRow>, Hash, Equal>;
  // A Shard puts each row that is used into `young`. Once `young` is full it becomes
  // `old`; the rows of the former `old` that were not used since are dropped.
  struct Shard {
    mutable Mutex mutex;
    Map young GUARDED_BY(mutex);
    Map old GUARDED_BY(mutex);
    size_t young_bytes GUARDED_BY(mutex) = 0;
    size_t old_bytes GUARDED_BY(mutex) = 0;
  };

  static constexpr size_t kShards = 16;

  static View ViewOf(uint32_t scope, std::string_view problem);
  Shard& ShardOf(uint64_t hash) { return shards_[(hash >> 60) % kShards]; }
  // Puts it into `young`. What is dropped by that goes into `dropped`, to be
  // freed without the lock.
  void PutLocked(const View& key, std::shared_ptr<const CachedRow> row, Shard* shard, Map* dropped)
      REQUIRES(shard->mutex);

  const size_t generation_bytes_;  // of one shard
  std::array<Shard, kShards>
      shards_;  // by the highest bits of the hash: flat_hash_map uses the others
};

}  // namespace convtune::rpc::services
