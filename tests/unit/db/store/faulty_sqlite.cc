#include "tests/unit/db/store/faulty_sqlite.h"

#include <sqlite3.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
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

struct OpenFile {
  const sqlite3_io_methods* real;
  sqlite3_io_methods faulty;  // the real ones but for those that may fail
  const char* path;           // SQLite keeps it while the file is open; null: temporary
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
  std::map<sqlite3_file*, OpenFile> files;
  sqlite3_vfs* real = nullptr;
  sqlite3_mem_methods memory{};
};

State& Global() {
  static auto* const state = new State;
  return *state;
}

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

const sqlite3_io_methods& Real(sqlite3_file* file) { return *Global().files.at(file).real; }

Disk* DiskOf(sqlite3_file* file) {
  const char* const path = Global().files.at(file).path;
  if (path == nullptr) return nullptr;
  const auto [it, is_new] = Global().disks.try_emplace(path);
  if (is_new) it->second.durable = ReadAll(path);
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

int Close(sqlite3_file* file) {
  file->pMethods = &Real(file);
  Global().files.erase(file);
  return file->pMethods->xClose(file);
}

int Read(sqlite3_file* file, void* data, int size, sqlite3_int64 offset) {
  if (const int rc = Enter(SQLITE_IOERR_READ, false); rc != SQLITE_OK) return rc;
  return Real(file).xRead(file, data, size, offset);
}

int Write(sqlite3_file* file, const void* data, int size, sqlite3_int64 offset) {
  if (const int rc = Enter(SQLITE_IOERR_WRITE, true); rc != SQLITE_OK) return rc;
  if (Disk* disk = DiskOf(file); disk != nullptr) {
    disk->pending.push_back(
        {offset, std::string(static_cast<const char*>(data), static_cast<size_t>(size))});
  }
  return Real(file).xWrite(file, data, size, offset);
}

int Truncate(sqlite3_file* file, sqlite3_int64 size) {
  if (const int rc = Enter(SQLITE_IOERR_TRUNCATE, false); rc != SQLITE_OK) return rc;
  if (Disk* disk = DiskOf(file); disk != nullptr) disk->pending.push_back({0, "", size});
  return Real(file).xTruncate(file, size);
}

// The disk is a pretended one: there is nothing to wait for.
int Sync(sqlite3_file* file, int) {
  if (const int rc = Enter(SQLITE_IOERR_FSYNC, false); rc != SQLITE_OK) return rc;
  // To see the tests fail: as if the store did not sync.
  static const bool without_sync = std::getenv("CONVTUNE_TEST_WITHOUT_SYNC") != nullptr;
  if (Disk* disk = DiskOf(file); disk != nullptr && !without_sync) {
    for (const PendingWrite& write : disk->pending) Apply(write, &disk->durable);
    disk->pending.clear();
  }
  return SQLITE_OK;
}

int DeviceCharacteristics(sqlite3_file*) { return 0; }

int Open(sqlite3_vfs*, const char* path, sqlite3_file* file, int flags, int* out_flags) {
  file->pMethods = nullptr;
  if (const int rc = Enter(SQLITE_CANTOPEN, false); rc != SQLITE_OK) return rc;
  const int rc = Global().real->xOpen(Global().real, path, file, flags, out_flags);
  if (file->pMethods == nullptr) return rc;
  OpenFile& open =
      Global()
          .files.insert_or_assign(file, OpenFile{file->pMethods, *file->pMethods, path})
          .first->second;
  open.faulty.iVersion = 2;  // without memory maps
  open.faulty.xClose = Close;
  open.faulty.xRead = Read;
  open.faulty.xWrite = Write;
  open.faulty.xTruncate = Truncate;
  open.faulty.xSync = Sync;
  open.faulty.xDeviceCharacteristics = DeviceCharacteristics;
  file->pMethods = &open.faulty;
  if (rc == SQLITE_OK) DiskOf(file);
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
