#include "server/rpc/services/response_cache.h"

#include <utility>

#include "absl/strings/string_view.h"

namespace convtune::rpc::services {
namespace {

// Beside the texts: the row, its control block, the slot in the table.
constexpr size_t kOverhead = 320;

size_t SizeOf(size_t key, const CachedRow& row) { return key + row.bytes.capacity() + kOverhead; }

}  // namespace

std::shared_ptr<const CachedRow> ResponseCache::Find(std::string_view key) {
  const absl::string_view text(key.data(), key.size());
  const size_t hash = Map::hasher()(text);
  Shard& shard = ShardOf(hash);
  MutexLock lock(shard.mutex);
  const auto found = shard.rows.find(text, hash);
  return found == shard.rows.end() ? nullptr : found->second;
}

void ResponseCache::Put(std::string_view key, std::shared_ptr<const CachedRow> row) {
  const size_t size = SizeOf(key.size(), *row);
  if (size > shard_bytes_) return;
  Shard& shard = ShardOf(Map::hasher()(absl::string_view(key.data(), key.size())));
  Map dropped;  // freed without the lock
  MutexLock lock(shard.mutex);
  if (shard.bytes + size > shard_bytes_) {
    std::swap(dropped, shard.rows);
    shard.bytes = 0;
  }
  auto& slot = shard.rows[std::string(key)];
  if (slot != nullptr) shard.bytes -= SizeOf(key.size(), *slot);
  slot = std::move(row);
  shard.bytes += size;
}

}  // namespace convtune::rpc::services
