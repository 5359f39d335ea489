// What every fuzz target needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace convtune::fuzz {

inline std::string ToString(const uint8_t* data, size_t size) {
  return std::string(reinterpret_cast<const char*>(data), size);
}

// A broken promise ends the program, which is what the fuzzer looks for.
inline void Require(bool promise) {
  if (!promise) std::abort();
}

// Keeps the reads that led to it from being optimised away.
inline void Use(uint64_t value) { asm volatile("" : : "r"(value)); }

}  // namespace convtune::fuzz
