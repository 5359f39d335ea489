// A Machine is what a kernel sees of the GPU that it runs on: memory and clocks.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace convtune::simgpu::ptx {

class Machine {
 public:
  virtual ~Machine() = default;

  // True if a kernel may touch all of it. The host has it at the same address.
  virtual bool Contains(uint64_t address, int64_t bytes) const = 0;
  // True if it is memory of the host.
  virtual bool IsMapped(uint64_t address) const = 0;
  // %globaltimer and %clock64 at a time of the GPU's clock.
  virtual uint64_t TimerAt(int64_t ns) const = 0;
  virtual uint64_t CyclesAt(int64_t ns) const = 0;
  // When the host began to wait for the kernel: what it wrote to its own memory
  // until now counts as written then, since nobody knows when it was.
  virtual int64_t HostNs() const = 0;
  virtual uint32_t sm_count() const = 0;
  virtual bool no_sm_0() const = 0;
};

// What the GPU makes of an access to `bytes` at `address`, of which each has to
// be a multiple of `alignment`.
inline cudaError_t CheckAccess(const Machine& machine, uint64_t address, uint64_t bytes,
                               uint64_t alignment) {
  if (address % alignment != 0) return cudaErrorMisalignedAddress;
  if (bytes > INT64_MAX || !machine.Contains(address, static_cast<int64_t>(bytes))) {
    return cudaErrorIllegalAddress;
  }
  return cudaSuccess;
}

}  // namespace convtune::simgpu::ptx
