#include "tests/simgpu/ptx/interpreter.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace convtune::simgpu::ptx {
namespace {

constexpr int64_t kInstructionPs = 500;  // about a cycle
constexpr int64_t kLoadNs = 300;         // from memory of the GPU
constexpr int64_t kMappedLoadNs = 700;   // from memory of the host, over PCIe
// Between the clocks of two SMs, which nothing keeps together.
constexpr uint64_t kCyclesApart = 1'000'003;

uint64_t Masked(uint64_t value, int bits) {
  return bits == 64 ? value : value & ((1ULL << bits) - 1);
}

uint64_t ReadValue(uint64_t address, size_t bytes) {
  uint64_t value = 0;
  std::memcpy(&value, reinterpret_cast<const void*>(address), bytes);
  return value;
}

void WriteValue(uint64_t address, uint64_t value, size_t bytes) {
  std::memcpy(reinterpret_cast<void*>(address), &value, bytes);
}

class Thread {
 public:
  Thread(const Kernel& kernel, const Machine& machine, int64_t start_ns,
         std::vector<uint64_t>* slots)
      : kernel_(kernel), machine_(machine), start_ns_(start_ns), slots_(slots->data()) {}

  RunEnd Run() {
    for (size_t next = 0;;) {
      const Instruction& instruction = kernel_.instructions[next++];
      ps_ += kInstructionPs;
      if (instruction.guard >= 0 &&
          (slots_[static_cast<size_t>(instruction.guard)] != 0) == instruction.negated) {
        continue;
      }
      switch (instruction.op) {
        case Op::kReturn:
          return {Now(), cudaSuccess};
        case Op::kBranch:
          next = static_cast<size_t>(instruction.target);
          break;
        case Op::kLoad:
        case Op::kStore:
        case Op::kAtomicAdd: {
          const cudaError_t error = Access(instruction);
          if (error != cudaSuccess) return {Now(), error};
          break;
        }
        default:
          Slot(instruction.values[0]) = Calculate(instruction);
      }
    }
  }

 private:
  int64_t Now() const { return start_ns_ + ps_ / 1000; }
  uint64_t& Slot(int number) { return slots_[static_cast<size_t>(number)]; }

  uint64_t Calculate(const Instruction& instruction) {
    const int bits = instruction.bits;
    const uint64_t a = Slot(instruction.arguments[0]);
    const uint64_t b = Slot(instruction.arguments[1]);
    const uint64_t c = Slot(instruction.arguments[2]);
    switch (instruction.op) {
      case Op::kMove:
        return a;
      case Op::kTimer:
        return machine_.TimerAt(Now());
      case Op::kClock:
        return machine_.CyclesAt(Now()) + Slot(Kernel::kSmid) * kCyclesApart;
      case Op::kAdd:
        return Masked(a + b, bits);
      case Op::kSub:
        return Masked(a - b, bits);
      case Op::kMul:
        return Masked(a * b, bits);
      case Op::kMad:
        return Masked(a * b + c, bits);
      case Op::kMulWide:
        return a * b;
      case Op::kMadWide:
        return a * b + c;
      case Op::kAnd:
        return a & b;
      case Op::kXor:
        return a ^ b;
      case Op::kShl:
        return b >= static_cast<uint64_t>(bits) ? 0 : Masked(a << b, bits);
      case Op::kSelect:
        return c != 0 ? a : b;
      case Op::kEqual:
        return a == b;
      case Op::kNotEqual:
        return a != b;
      case Op::kLess:
        return a < b;
      case Op::kLessOrEqual:
        return a <= b;
      case Op::kGreater:
        return a > b;
      case Op::kGreaterOrEqual:
        return a >= b;
      default:
        return 0;  // the rest is no calculation
    }
  }

  cudaError_t Access(const Instruction& instruction) {
    const size_t bytes = instruction.bits / 8;
    const uint64_t all_bytes = bytes * instruction.count;
    const uint64_t address =
        Slot(instruction.arguments[0]) + static_cast<uint64_t>(instruction.offset);
    const cudaError_t error = CheckAccess(machine_, address, all_bytes, all_bytes);
    if (error != cudaSuccess) return error;
    if (instruction.op == Op::kAtomicAdd) {
      WriteValue(address, ReadValue(address, bytes) + Slot(instruction.arguments[1]), bytes);
      return cudaSuccess;
    }
    if (instruction.op == Op::kLoad) WaitForLoad(instruction, address);
    for (size_t i = 0; i < instruction.count; ++i) {
      uint64_t& value = Slot(instruction.values[i]);
      if (instruction.op == Op::kStore) {
        WriteValue(address + i * bytes, value, bytes);
      } else {
        value = Seen(instruction, address, ReadValue(address + i * bytes, bytes));
      }
    }
    return cudaSuccess;
  }

  // What a load of it finds now: what the host wrote into its own memory is not
  // there before Machine::HostNs. A load that is not volatile may be done once for
  // all: what it finds is what was there as the kernel began.
  uint64_t Seen(const Instruction& load, uint64_t address, uint64_t value) const {
    const int64_t ns = load.is_volatile ? Now() : start_ns_;
    return ns < machine_.HostNs() && machine_.IsMapped(address) ? 0 : value;
  }

  // A loop of volatile loads may wait for two seconds. So that it is soon run,
  // such a load takes a thousandth of the thread's time at least: a limit of
  // 700 us or less ends within one usual load, a longer one within 0.1%.
  void WaitForLoad(const Instruction& instruction, uint64_t address) {
    ps_ += (machine_.IsMapped(address) ? kMappedLoadNs : kLoadNs) * 1000;
    if (instruction.is_volatile) ps_ = std::max(ps_, loaded_ps_ + loaded_ps_ / 1000);
    loaded_ps_ = ps_;
  }

  const Kernel& kernel_;
  const Machine& machine_;
  const int64_t start_ns_;
  uint64_t* const slots_;
  int64_t ps_ = 0;         // since the start
  int64_t loaded_ps_ = 0;  // when the last load ended
};

}  // namespace

RunEnd Run(const Kernel& kernel, Grid grid, absl::Span<const uint64_t> arguments, int64_t start_ns,
           const Machine& machine) {
  std::vector<uint64_t> first = kernel.slots;
  first[Kernel::kNtid] = grid.threads;
  first[Kernel::kNctaid] = grid.blocks;
  std::copy(arguments.begin(), arguments.end(), first.begin() + Kernel::kSpecials);
  RunEnd end = {start_ns, cudaSuccess};
  std::vector<uint64_t> slots(first.size());
  for (uint32_t block = 0; block < grid.blocks; ++block) {
    const uint32_t sm = block % machine.sm_count();
    first[Kernel::kCtaid] = block;
    first[Kernel::kSmid] = sm == 0 && machine.no_sm_0() ? 1 : sm;
    for (uint32_t thread = 0; thread < grid.threads; ++thread) {
      first[Kernel::kTid] = thread;
      slots = first;
      const RunEnd one = Thread(kernel, machine, start_ns, &slots).Run();
      end.ns = std::max(end.ns, one.ns);
      if (one.error != cudaSuccess) return {end.ns, one.error};
    }
  }
  return end;
}

}  // namespace convtune::simgpu::ptx
