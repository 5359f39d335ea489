// A SnapshotFile is a snapshot in memory, read from its file and verified. Freestanding.
#pragma once

#include <stddef.h>

#include "db/snapshot/snapshot.h"

namespace convtune::snapshot {

// Not thread-safe while it is read; then it does not change.
class SnapshotFile {
 public:
  SnapshotFile() = default;
  ~SnapshotFile();
  SnapshotFile(const SnapshotFile&) = delete;
  SnapshotFile& operator=(const SnapshotFile&) = delete;

  // Reads the file into private memory; a file above kSnapshotCopyLimit is mapped. Returns false
  // and sets the reason if the file is missing or its verification fails. Call it once.
  bool Read(const char* path, const char** reason);
  // Of a file that was read.
  const SnapshotView& view() const { return view_; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
  SnapshotView view_;
};

}  // namespace convtune::snapshot
