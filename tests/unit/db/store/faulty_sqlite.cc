#include "tests/unit/db/store/faulty_sqlite.h"

#include <sqlite3.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <new>
#include <random>
#include <vector>

namespace convtune::db::store {
namespace {

struct PendingWrite {
  int64_t offset;
  std::string data;
  int64_t cut = -1;  // not a write: the file's new size
};

// A file as a disk would have it.
struct Disk {
  std::string durable;
  std::vector<PendingWrite> pending;
};

struct State {
  int64_t calls = 0;
  int64_t allocations = 0;
  int64_t fail_call = 0;
  int64_t fail_allocation = 0;
  FaultySqlite::Failure failure = FaultySqlite::Failure::kError;
  bool fired = false;
  bool dark = false;  // the power is off
  std::map<std::string, Disk> disks;
  sqlite3_vfs* real = nullptr;
  sqlite3_mem_methods memory{};
};

State& Global() {
  static auto* const state = new State;
  return *state;
}

struct File {
  sqlite3_file base;
  const char* path;  // SQLite keeps it while the file is open; null: temporary
  sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};

File* Of(sqlite3_file* file) { return reinterpret_cast<File*>(file); }

// SQLITE_OK: go on. `error` is what the kind of call gives for an I/O error.
int Enter(int error, bool writes) {
  State& state = Global();
  if (state.dark) return error;
  if (++state.calls != state.fail_call) return SQLITE_OK;
  if (state.failure == FaultySqlite::Failure::kFull && !writes) {
    ++state.fail_call;
    return SQLITE_OK;
  }
  state.fired = true;
  state.dark = state.failure == FaultySqlite::Failure::kPower;
  return state.failure == FaultySqlite::Failure::kFull ? SQLITE_FULL : error;
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Disk* DiskOf(File* file) {
  if (file->path == nullptr) return nullptr;
  const auto [it, is_new] = Global().disks.try_emplace(file->path);
  if (is_new) it->second.durable = ReadAll(file->path);
  return &it->second;
}

void Apply(const PendingWrite& write, std::string* content) {
  if (write.cut >= 0) {
    content->resize(static_cast<size_t>(write.cut));
    return;
  }
  const size_t end = static_cast<size_t>(write.offset) + write.data.size();
  if (content->size() < end) content->resize(end);
  content->replace(static_cast<size_t>(write.offset), write.data.size(), write.data);
}

int Close(sqlite3_file* file) { return Of(file)->real()->pMethods->xClose(Of(file)->real()); }

int Read(sqlite3_file* file, void* data, int size, sqlite3_int64 offset) {
  if (const int rc = Enter(SQLITE_IOERR_READ, false); rc != SQLITE_OK) return rc;
  return Of(file)->real()->pMethods->xRead(Of(file)->real(), data, size, offset);
}

int Write(sqlite3_file* file, const void* data, int size, sqlite3_int64 offset) {
  if (const int rc = Enter(SQLITE_IOERR_WRITE, true); rc != SQLITE_OK) return rc;
  if (Disk* disk = DiskOf(Of(file)); disk != nullptr) {
    disk->pending.push_back(
        {offset, std::string(static_cast<const char*>(data), static_cast<size_t>(size))});
  }
  return Of(file)->real()->pMethods->xWrite(Of(file)->real(), data, size, offset);
}

int Truncate(sqlite3_file* file, sqlite3_int64 size) {
  if (const int rc = Enter(SQLITE_IOERR_TRUNCATE, false); rc != SQLITE_OK) return rc;
  if (Disk* disk = DiskOf(Of(file)); disk != nullptr) disk->pending.push_back({0, "", size});
  return Of(file)->real()->pMethods->xTruncate(Of(file)->real(), size);
}

int Sync(sqlite3_file* file, int flags) {
  if (const int rc = Enter(SQLITE_IOERR_FSYNC, false); rc != SQLITE_OK) return rc;
  // To see the tests fail: as if the store did not sync.
  static const bool without_sync = std::getenv("CONVTUNE_TEST_WITHOUT_SYNC") != nullptr;
  if (Disk* disk = DiskOf(Of(file)); disk != nullptr && !without_sync) {
    for (const PendingWrite& write : disk->pending) Apply(write, &disk->durable);
    disk->pending.clear();
  }
  // The disk is a pretended one: there is nothing to wait for.
  (void)flags;
  return SQLITE_OK;
}

int FileSize(sqlite3_file* file, sqlite3_int64* size) {
  return Of(file)->real()->pMethods->xFileSize(Of(file)->real(), size);
}
int Lock(sqlite3_file* file, int level) {
  return Of(file)->real()->pMethods->xLock(Of(file)->real(), level);
}
int Unlock(sqlite3_file* file, int level) {
  return Of(file)->real()->pMethods->xUnlock(Of(file)->real(), level);
}
int CheckReservedLock(sqlite3_file* file, int* out) {
  return Of(file)->real()->pMethods->xCheckReservedLock(Of(file)->real(), out);
}
int FileControl(sqlite3_file* file, int op, void* argument) {
  return Of(file)->real()->pMethods->xFileControl(Of(file)->real(), op, argument);
}
int SectorSize(sqlite3_file* file) {
  return Of(file)->real()->pMethods->xSectorSize(Of(file)->real());
}
int DeviceCharacteristics(sqlite3_file*) { return 0; }
int ShmMap(sqlite3_file* file, int page, int size, int extend, void volatile** out) {
  return Of(file)->real()->pMethods->xShmMap(Of(file)->real(), page, size, extend, out);
}
int ShmLock(sqlite3_file* file, int offset, int n, int flags) {
  return Of(file)->real()->pMethods->xShmLock(Of(file)->real(), offset, n, flags);
}
void ShmBarrier(sqlite3_file* file) { Of(file)->real()->pMethods->xShmBarrier(Of(file)->real()); }
int ShmUnmap(sqlite3_file* file, int remove) {
  return Of(file)->real()->pMethods->xShmUnmap(Of(file)->real(), remove);
}

constexpr sqlite3_io_methods kMethods = {2,
                                         Close,
                                         Read,
                                         Write,
                                         Truncate,
                                         Sync,
                                         FileSize,
                                         Lock,
                                         Unlock,
                                         CheckReservedLock,
                                         FileControl,
                                         SectorSize,
                                         DeviceCharacteristics,
                                         ShmMap,
                                         ShmLock,
                                         ShmBarrier,
                                         ShmUnmap,
                                         nullptr,
                                         nullptr};

int Open(sqlite3_vfs*, const char* path, sqlite3_file* file, int flags, int* out_flags) {
  File* const made = new (file) File{{nullptr}, path};
  if (const int rc = Enter(SQLITE_CANTOPEN, false); rc != SQLITE_OK) return rc;
  const int rc = Global().real->xOpen(Global().real, path, made->real(), flags, out_flags);
  if (made->real()->pMethods != nullptr) made->base.pMethods = &kMethods;
  if (rc == SQLITE_OK) DiskOf(made);
  return rc;
}

int Delete(sqlite3_vfs*, const char* path, int sync) {
  if (const int rc = Enter(SQLITE_IOERR_DELETE, false); rc != SQLITE_OK) return rc;
  Global().disks.erase(path);
  return Global().real->xDelete(Global().real, path, sync);
}

void* Allocate(int size) {
  State& state = Global();
  if (++state.allocations == state.fail_allocation) {
    state.fired = true;
    return nullptr;
  }
  return state.memory.xMalloc(size);
}

void* Reallocate(void* old, int size) {
  State& state = Global();
  if (++state.allocations == state.fail_allocation) {
    state.fired = true;
    return nullptr;
  }
  return state.memory.xRealloc(old, size);
}

void Reset() {
  State& state = Global();
  state.calls = state.allocations = state.fail_call = state.fail_allocation = 0;
  state.fired = state.dark = false;
  // No file is open: what is there now is on the disk.
  state.disks.clear();
}

}  // namespace

void FaultySqlite::Install() {
  State& state = Global();
  if (state.real != nullptr) return;
  sqlite3_config(SQLITE_CONFIG_GETMALLOC, &state.memory);
  sqlite3_mem_methods memory = state.memory;
  memory.xMalloc = Allocate;
  memory.xRealloc = Reallocate;
  sqlite3_config(SQLITE_CONFIG_MALLOC, &memory);
  state.real = sqlite3_vfs_find(nullptr);
  static sqlite3_vfs vfs;
  vfs = *state.real;
  vfs.zName = "faulty";
  vfs.szOsFile = static_cast<int>(sizeof(File)) + state.real->szOsFile;
  vfs.xOpen = Open;
  vfs.xDelete = Delete;
  sqlite3_vfs_register(&vfs, 1);
}

bool FaultySqlite::fired() { return Global().fired; }

void FaultySqlite::ArmCall(int64_t n, Failure failure) {
  Reset();
  Global().fail_call = n;
  Global().failure = failure;
}

void FaultySqlite::ArmAllocation(int64_t n) {
  Reset();
  Global().fail_allocation = n;
}

void FaultySqlite::Disarm() { Reset(); }

int64_t FaultySqlite::RestorePower(uint64_t seed) {
  std::mt19937_64 random(seed);
  int64_t lost = 0;
  for (auto& [path, disk] : Global().disks) {
    std::error_code ignored;
    if (path.ends_with("-shm") || !std::filesystem::exists(path, ignored)) continue;
    std::string content = disk.durable;
    // All, none, or each by chance: a disk writes in the order that it likes.
    const uint64_t mood = random() % 3;
    for (PendingWrite write : disk.pending) {
      const bool kept = mood == 0 || (mood == 1 && random() % 2 == 0);
      if (!kept) ++lost;
      if (kept && write.cut < 0 && random() % 8 == 0) write.data.resize(write.data.size() / 2);
      if (kept) Apply(write, &content);
    }
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
    std::filesystem::remove(path + "-shm", ignored);
  }
  Reset();
  return lost;
}

}  // namespace convtune::db::store
