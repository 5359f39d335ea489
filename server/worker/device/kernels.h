// Kernels launches convtune's own kernels. They are tiny and written in PTX, which
// the driver compiles for the GPU, so that building needs no CUDA compiler.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/worker/device/device_memory.h"

namespace convtune::worker::device {

// The text of kernels.ptx.
extern const char kKernelsPtx[];

// The kernels, loaded into the current context. Launches put work on a stream
// and do not wait; errors are the driver's. What the kernels do is said in
// kernels.ptx. Pointers are those of the device. Not thread-safe.
class Kernels {
 public:
  // Loads them through libcuda.so.1, which the CUDA runtime has loaded before,
  // and runs each once on `stream`, so that no later launch has to load code.
  // UNAVAILABLE without a driver; else CUDA's, with the compiler's words.
  static absl::StatusOr<std::unique_ptr<Kernels>> Load(int sm_count, cudaStream_t stream);
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  // `gate`: two 32-bit words; the kernel ends when the first is not 0, or sets
  // the second after `limit_ns` nanoseconds.
  absl::Status Block(void* gate, uint64_t limit_ns);
  // `stamp`: a Stamp, aligned to 16 bytes.
  absl::Status PutStamp(void* stamp);
  // Reads `bytes`, but for a rest of less than 16, into the L2 cache. `data` is
  // aligned to 16 bytes.
  absl::Status Sweep(const void* data, int64_t bytes);
  // Copies `count` elements (1 at least) of `size` bytes, which lie offsets[i] bytes behind
  // `data`, to `out`, one behind the other.
  absl::Status Gather(const void* data, const void* offsets, uint32_t count, uint32_t size,
                      void* out);
  // Adds to the 64-bit word `counter` how many of `count` elements of `size`
  // bytes (1, 2, 4 or 8) have all bits of `mask` set.
  absl::Status Scan(const void* data, uint64_t count, uint32_t size, uint64_t mask, void* counter);

 private:
  struct Driver;

  Kernels(int sm_count, cudaStream_t stream);

  absl::Status RunEachOnce();

  const unsigned int sm_count_;
  const cudaStream_t stream_;
  const std::unique_ptr<Driver> driver_;
  DeviceBuffer sink_;  // see convtune_sweep
};

}  // namespace convtune::worker::device
