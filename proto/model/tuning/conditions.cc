#include "proto/model/tuning/conditions.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "convtune/v1/record.pb.h"
#include "google/protobuf/descriptor.h"
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

void Merge(const Conditions& look, Conditions* conditions) {
  conditions->self_check |= look.self_check;
  conditions->retried_runs = std::max(conditions->retried_runs, look.retried_runs);
  if (!look.unblocked.empty()) conditions->unblocked = look.unblocked;
  if (!look.known) return;
  conditions->known = true;
  conditions->other_processes = std::max(conditions->other_processes, look.other_processes);
  conditions->clock_reasons |= look.clock_reasons;
  conditions->power_limit_watts = look.power_limit_watts;
  conditions->temperature_celsius =
      std::max(conditions->temperature_celsius, look.temperature_celsius);
  conditions->ecc_errors = std::max(conditions->ecc_errors, look.ecc_errors);
  conditions->mig |= look.mig;
  conditions->mps |= look.mps;
  conditions->compute_mode = look.compute_mode;
}

std::vector<std::string> Marks(const Conditions& conditions) {
  std::vector<std::string> marks;
  if (!conditions.known) return marks;
  if (conditions.other_processes > 0) {
    marks.push_back(Concat("contended: ", conditions.other_processes,
                           conditions.other_processes == 1 ? " other process" : " other processes",
                           " on the GPU"));
  }
  if (conditions.mps) marks.push_back("contended: an MPS server has the GPU");
  if (conditions.throttled()) {
    marks.push_back(
        Concat("throttled: ",
               absl::StrJoin(ClockReasonNames(conditions.clock_reasons & kThrottleReasons), ", ")));
  }
  if (conditions.ecc_errors > 0) {
    marks.push_back(Concat("uncorrected ECC errors: ", conditions.ecc_errors));
  }
  return marks;
}

std::vector<std::string> ClockReasonNames(uint32_t reasons) {
  const google::protobuf::EnumDescriptor& type = *v1::ClockReason_descriptor();
  std::vector<std::string> names;
  for (int i = 0; i < type.value_count(); ++i) {
    const int bit = type.value(i)->number();
    if ((reasons & static_cast<uint32_t>(bit)) != 0) names.push_back(EnumWord(type, bit, ' '));
  }
  return names;
}

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
