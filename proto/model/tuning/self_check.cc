#include "proto/model/tuning/self_check.h"

#include <array>
#include <utility>

#include "proto/base/strings.h"

namespace convtune {
namespace {

constexpr std::array<std::pair<SelfCheckBit, const char*>, 4> kInstruments = {
    {{SelfCheckBit::kBlockingKernel, "blocking_kernel"},
     {SelfCheckBit::kClock, "clock"},
     {SelfCheckBit::kCaches, "caches"},
     {SelfCheckBit::kChecker, "checker"}}};

constexpr uint32_t Bit(SelfCheckBit bit) { return static_cast<uint32_t>(bit); }

}  // namespace

std::vector<SelfCheckCell> SelfCheckCells() {
  std::vector<SelfCheckCell> cells;
  for (const Api api : {Api::kGraph, Api::kLegacy}) {
    for (const Operation operation :
         {Operation::kFwd, Operation::kBwdData, Operation::kBwdFilter}) {
      for (const bool narrow : {false, true}) cells.push_back({api, operation, narrow});
    }
  }
  return cells;
}

std::string Name(const SelfCheckCell& cell) {
  return Concat(Name(cell.api), ":", Name(cell.operation), ":", cell.narrow ? "f16" : "f32");
}

uint32_t ToMask(const SelfCheck& check) {
  if (!check.known) return 0;
  uint32_t mask = Bit(SelfCheckBit::kRun) | check.failed_cells;
  if (!check.blocking_kernel) mask |= Bit(SelfCheckBit::kBlockingKernel);
  if (!check.clock) mask |= Bit(SelfCheckBit::kClock);
  if (!check.caches) mask |= Bit(SelfCheckBit::kCaches);
  if (!check.checker) mask |= Bit(SelfCheckBit::kChecker);
  return mask;
}

SelfCheck SelfCheckOfMask(uint32_t mask) {
  SelfCheck check;
  if ((mask & Bit(SelfCheckBit::kRun)) == 0) return check;
  const auto works = [mask](SelfCheckBit bit) { return (mask & Bit(bit)) == 0; };
  check.known = true;
  check.blocking_kernel = works(SelfCheckBit::kBlockingKernel);
  check.clock = works(SelfCheckBit::kClock);
  check.caches = works(SelfCheckBit::kCaches);
  check.checker = works(SelfCheckBit::kChecker);
  for (const SelfCheckCell& cell : SelfCheckCells()) check.failed_cells |= mask & CellBit(cell);
  return check;
}

uint32_t SelfCheckBits() {
  uint32_t bits = Bit(SelfCheckBit::kRun);
  for (const auto& [bit, name] : kInstruments) bits |= Bit(bit);
  for (const SelfCheckCell& cell : SelfCheckCells()) bits |= CellBit(cell);
  return bits;
}

std::optional<uint32_t> MaskOfFailed(const std::vector<std::string>& names) {
  uint32_t mask = Bit(SelfCheckBit::kRun);
  for (const std::string& name : names) {
    const uint32_t before = mask;
    for (const auto& [bit, instrument] : kInstruments) {
      if (name == instrument) mask |= Bit(bit);
    }
    for (const SelfCheckCell& cell : SelfCheckCells()) {
      if (name == Name(cell)) mask |= CellBit(cell);
    }
    if (mask == before) return std::nullopt;
  }
  return mask;
}

std::vector<std::string> FailedInstruments(uint32_t mask) {
  std::vector<std::string> names;
  for (const auto& [bit, name] : kInstruments) {
    if ((mask & Bit(bit)) != 0) names.emplace_back(name);
  }
  for (const SelfCheckCell& cell : SelfCheckCells()) {
    if ((mask & CellBit(cell)) != 0) names.push_back(Name(cell));
  }
  return names;
}

}  // namespace convtune
