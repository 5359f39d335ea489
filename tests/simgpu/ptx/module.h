// A Module is a text of PTX, ready to run.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace convtune::simgpu::ptx {

// As the PTX manual has them, for unsigned values.
enum class Op : uint8_t {
  kMove,
  kTimer,
  kClock,
  kAdd,
  kSub,
  kMul,
  kMad,
  kMulWide,
  kMadWide,
  kAnd,
  kXor,
  kShl,
  kSelect,
  kEqual,
  kNotEqual,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  kLoad,
  kStore,
  kAtomicAdd,
  kBranch,
  kReturn,
};

// Operands are slots: numbers into a thread's memory for registers, parameters,
// special registers and constants alike.
struct Instruction {
  Op op = Op::kReturn;
  uint8_t bits = 64;
  uint8_t count = 1;  // elements of a vector
  bool is_volatile = false;
  bool negated = false;  // runs where the guard is false
  int guard = -1;        // the slot of the predicate that it runs under, or -1
  int target = 0;        // of a branch: the instruction
  int64_t offset = 0;    // added to an address
  // The result's slots, or what is stored.
  std::array<int, 4> values = {};
  // The arguments' slots; that of an address comes first.
  std::array<int, 3> arguments = {};
};

struct Parameter {
  std::string name;
  int bytes = 0;
};

struct Kernel {
  // The first slots of every kernel; the parameters' follow.
  enum Special { kTid, kNtid, kCtaid, kNctaid, kSmid, kTimer, kClock, kSpecials };

  std::string name;
  std::vector<Parameter> parameters;
  // What a thread's slots hold before parameters and special registers are set.
  // Registers hold rubbish, as on a GPU.
  std::vector<uint64_t> slots;
  std::vector<Instruction> instructions;
};

class Module {
 public:
  // Knows the instructions of convtune's own kernels and refuses every other
  // one; errors begin with "line N: ".
  static absl::StatusOr<Module> Parse(std::string_view text);

  const std::vector<Kernel>& kernels() const { return kernels_; }
  // Null if the module has no kernel of this name.
  const Kernel* Find(std::string_view name) const;

 private:
  std::vector<Kernel> kernels_;
};

}  // namespace convtune::simgpu::ptx
