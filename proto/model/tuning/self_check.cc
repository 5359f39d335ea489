#include "proto/model/tuning/self_check.h"

#include <utility>

#include "proto/base/strings.h"
#include "proto/model/enums.h"

namespace convtune {
namespace {

constexpr std::pair<SelfCheckBit, const char*> kInstruments[] = {
    {SelfCheckBit::kBlockingKernel, "blocking_kernel"},
    {SelfCheckBit::kClock, "clock"},
    {SelfCheckBit::kCaches, "caches"},
    {SelfCheckBit::kChecker, "checker"},
    {SelfCheckBit::kCaptures, "captures"}};

using NamedBits = std::vector<std::pair<uint32_t, std::string>>;

NamedBits MakeNames() {
  NamedBits names;
  for (const auto& [bit, name] : kInstruments) names.emplace_back(MaskOf(bit), name);
  for (const Api api : {Api::kGraph, Api::kLegacy}) {
    for (const Operation operation :
         {Operation::kFwd, Operation::kBwdData, Operation::kBwdFilter}) {
      for (const int narrow : {0, 1}) {
        const int bit = static_cast<int>(api) * 8 + static_cast<int>(operation) * 2 + narrow;
        names.emplace_back(uint32_t{1} << bit, Concat(Name(api), ":", Name(operation), ":",
                                                      narrow != 0 ? "f16" : "f32"));
      }
    }
  }
  return names;
}

// Of every bit but kRun, in the order of the bits.
const NamedBits& Names() {
  static const NamedBits* const names = new NamedBits(MakeNames());
  return *names;
}

}  // namespace

uint32_t SelfCheckSteps() {
  uint32_t bits = 0;
  for (const auto& [bit, name] : kInstruments) bits |= MaskOf(bit);
  return bits;
}

std::optional<uint32_t> MaskOfFailed(const std::vector<std::string>& names) {
  uint32_t mask = MaskOf(SelfCheckBit::kRun);
  for (const std::string& name : names) {
    const uint32_t before = mask;
    for (const auto& [bit, known] : Names()) {
      if (name == known) mask |= bit;
    }
    if (mask == before) return std::nullopt;
  }
  return mask;
}

std::vector<std::string> FailedInstruments(uint32_t mask) {
  std::vector<std::string> names;
  for (const auto& [bit, name] : Names()) {
    if ((mask & bit) != 0) names.push_back(name);
  }
  return names;
}

}  // namespace convtune
