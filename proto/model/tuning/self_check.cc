#include "proto/model/tuning/self_check.h"

#include <utility>

#include "proto/base/strings.h"

namespace convtune {
namespace {

struct Instrument {
  SelfCheckBit bit;
  const char* name;
  bool SelfCheck::*works;
};

constexpr Instrument kInstruments[] = {
    {SelfCheckBit::kBlockingKernel, "blocking_kernel", &SelfCheck::blocking_kernel},
    {SelfCheckBit::kClock, "clock", &SelfCheck::clock},
    {SelfCheckBit::kCaches, "caches", &SelfCheck::caches},
    {SelfCheckBit::kChecker, "checker", &SelfCheck::checker},
    {SelfCheckBit::kCaptures, "captures", &SelfCheck::captures}};

constexpr uint32_t Bit(SelfCheckBit bit) { return static_cast<uint32_t>(bit); }

using NamedBits = std::vector<std::pair<uint32_t, std::string>>;

NamedBits MakeNames() {
  NamedBits names;
  for (const Instrument& one : kInstruments) names.emplace_back(Bit(one.bit), one.name);
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

uint32_t ToMask(const SelfCheck& check) {
  if (!check.known) return 0;
  uint32_t mask = Bit(SelfCheckBit::kRun);
  for (const Instrument& one : kInstruments) {
    if (!(check.*one.works)) mask |= Bit(one.bit);
  }
  return mask;
}

SelfCheck SelfCheckOfMask(uint32_t mask) {
  SelfCheck check;
  check.known = (mask & Bit(SelfCheckBit::kRun)) != 0;
  for (const Instrument& one : kInstruments) {
    if (check.known) check.*one.works = (mask & Bit(one.bit)) == 0;
  }
  return check;
}

uint32_t SelfCheckBits() {
  uint32_t bits = Bit(SelfCheckBit::kRun);
  for (const auto& [bit, name] : Names()) bits |= bit;
  return bits;
}

uint32_t SelfCheckSteps() {
  uint32_t bits = 0;
  for (const Instrument& one : kInstruments) bits |= Bit(one.bit);
  return bits;
}

std::optional<uint32_t> MaskOfFailed(const std::vector<std::string>& names) {
  uint32_t mask = Bit(SelfCheckBit::kRun);
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
