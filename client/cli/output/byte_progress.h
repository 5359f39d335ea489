// A ByteProgress shows on a terminal how many bytes have been done.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "client/cli/output/io.h"

namespace convtune::cli {

// "sending  12.0 MiB of 48.0 MiB"; `total` 0: not known.
std::string RenderBytes(const std::string& what, int64_t done, int64_t total);

// A line on io.err that is written over again, ten times a second at most;
// nothing where that is no terminal. Not thread-safe.
class ByteProgress {
 public:
  ByteProgress(Io& io, std::string what, int64_t total);
  ~ByteProgress();
  ByteProgress(const ByteProgress&) = delete;
  ByteProgress& operator=(const ByteProgress&) = delete;

  void Show(int64_t done);

 private:
  Io& io_;
  const std::string what_;
  const int64_t total_;
  absl::Time next_;
  bool shown_ = false;
};

}  // namespace convtune::cli
