#include "server/rpc/services/response_cache.h"

#include <utility>

#include "proto/model/tuning/digest.h"

namespace convtune::rpc::services {
namespace {

// Beside the texts: the row, its control block, the slot in the table.
constexpr size_t kOverhead = 384;
constexpr uint64_t kSpread = 0x9E3779B97F4A7C15;  // 2^64 / golden ratio

size_t SizeOf(size_t problem, const CachedRow& row) {
  return problem + row.bytes.capacity() + kOverhead;
}

}  // namespace

ResponseCache::ResponseCache(size_t max_bytes) : generation_bytes_(max_bytes / kShards / 2) {}

ResponseCache::View ResponseCache::ViewOf(uint32_t scope, std::string_view problem) {
  return {Checksum64(problem) ^ (scope * kSpread), scope, problem};
}

void ResponseCache::PutLocked(const View& key, std::shared_ptr<const CachedRow> row, Shard* shard,
                              Map* dropped) {
  const size_t size = SizeOf(key.problem.size(), *row);
  if (shard->young_bytes + size > generation_bytes_) {
    std::swap(*dropped, shard->old);
    std::swap(shard->old, shard->young);
    shard->old_bytes = std::exchange(shard->young_bytes, 0);
  }
  auto& slot = shard->young[Key{key.hash, key.scope, std::string(key.problem)}];
  if (slot != nullptr) shard->young_bytes -= SizeOf(key.problem.size(), *slot);
  slot = std::move(row);
  shard->young_bytes += size;
}

std::shared_ptr<const CachedRow> ResponseCache::Find(uint32_t scope, std::string_view problem) {
  const View key = ViewOf(scope, problem);
  Shard& shard = ShardOf(key.hash);
  Map dropped;
  MutexLock lock(shard.mutex);
  if (const auto young = shard.young.find(key); young != shard.young.end()) return young->second;
  const auto old = shard.old.find(key);
  if (old == shard.old.end()) return nullptr;
  std::shared_ptr<const CachedRow> row = std::move(old->second);
  shard.old.erase(old);
  shard.old_bytes -= SizeOf(problem.size(), *row);
  PutLocked(key, row, &shard, &dropped);
  return row;
}

void ResponseCache::Put(uint32_t scope, std::string_view problem,
                        std::shared_ptr<const CachedRow> row) {
  const View key = ViewOf(scope, problem);
  Shard& shard = ShardOf(key.hash);
  if (SizeOf(problem.size(), *row) > generation_bytes_) return;
  Map dropped;
  MutexLock lock(shard.mutex);
  if (const auto old = shard.old.find(key); old != shard.old.end()) {
    shard.old_bytes -= SizeOf(problem.size(), *old->second);
    shard.old.erase(old);
  }
  PutLocked(key, std::move(row), &shard, &dropped);
}

size_t ResponseCache::bytes() const {
  size_t total = 0;
  for (const Shard& shard : shards_) {
    MutexLock lock(shard.mutex);
    total += shard.young_bytes + shard.old_bytes;
  }
  return total;
}

}  // namespace convtune::rpc::services
