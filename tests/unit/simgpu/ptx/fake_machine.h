// A FakeMachine is a GPU as far as a kernel sees it: what a test gives it.
#pragma once

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/simgpu/ptx/machine.h"

namespace convtune::simgpu::ptx {

// The text of convtune's own kernels.
inline std::string KernelsText() {
  std::ostringstream text;
  text << std::ifstream(CONVTUNE_KERNELS_PTX).rdbuf();
  return text.str();
}

inline uint64_t Address(const void* data) { return reinterpret_cast<uint64_t>(data); }

class FakeMachine : public Machine {
 public:
  static constexpr uint64_t kCyclesPerNs = 2;

  void Add(const void* data, size_t bytes, bool mapped = false) {
    memory_.push_back({Address(data), bytes, mapped});
  }
  template <typename T>
  void Add(const std::vector<T>& values) {
    Add(values.data(), values.size() * sizeof(T));
  }

  bool Contains(uint64_t address, int64_t bytes) const override {
    ++looks;
    for (const Memory& memory : memory_) {
      if (address >= memory.address && address - memory.address <= memory.bytes &&
          static_cast<uint64_t>(bytes) <= memory.bytes - (address - memory.address)) {
        return true;
      }
    }
    return false;
  }
  bool IsMapped(uint64_t address) const override {
    for (const Memory& memory : memory_) {
      if (address - memory.address < memory.bytes) return memory.mapped;
    }
    return false;
  }
  uint64_t TimerAt(int64_t ns) const override {
    return timer_step == 0 ? 7 : static_cast<uint64_t>(ns) / timer_step * timer_step;
  }
  uint64_t CyclesAt(int64_t ns) const override { return kCyclesPerNs * static_cast<uint64_t>(ns); }
  int64_t HostNs() const override { return host_ns; }
  uint32_t sm_count() const override { return 132; }
  bool no_sm_0() const override { return without_sm_0; }

  uint64_t timer_step = 32;  // 0: it stands still
  int64_t host_ns = 0;
  bool without_sm_0 = false;
  mutable int64_t looks = 0;  // into its memory

 private:
  struct Memory {
    uint64_t address = 0;
    uint64_t bytes = 0;
    bool mapped = false;
  };
  std::vector<Memory> memory_;
};

}  // namespace convtune::simgpu::ptx
