#include "proto/model/enums.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "convtune/v1/record.pb.h"
#include "convtune/v1/tuning.pb.h"
#include "google/protobuf/descriptor.h"
#include "proto/base/strings.h"

namespace convtune {
namespace {

using Descriptor = const google::protobuf::EnumDescriptor* (*)();

// By number. Number 0, which is UNSPECIFIED in convtune.v1, has the word `zero`, or none.
std::map<int, std::string> MakeWords(const google::protobuf::EnumDescriptor& type,
                                     std::string_view zero) {
  std::map<int, std::string> words;
  for (int i = 0; i < type.value_count(); ++i) {
    const int number = type.value(i)->number();
    words[number] = number == 0 ? std::string(zero) : EnumWord(type, number);
  }
  if (zero.empty()) words.erase(0);
  return words;
}

template <Descriptor kType>
const std::map<int, std::string>& Words(std::string_view zero) {
  static const auto* const words = new std::map<int, std::string>(MakeWords(*kType(), zero));
  return *words;
}

template <Descriptor kType, typename E>
std::string_view Word(E value, std::string_view zero = "") {
  const auto& words = Words<kType>(zero);
  const auto found = words.find(static_cast<int>(value));
  return found == words.end() ? "invalid" : std::string_view(found->second);
}

template <typename E, Descriptor kType>
std::optional<E> Find(std::string_view text, std::string_view zero = "") {
  for (const auto& [number, word] : Words<kType>(zero)) {
    if (word == text) return static_cast<E>(number);
  }
  return std::nullopt;
}

struct Format {
  int64_t bytes = 0;
  double roundoff = 0;
};

Format FormatOf(DataType type) {
  // By the type's number, from f64 on.
  static constexpr Format kFormats[] = {{},           {8, 0x1p-53}, {4, 0x1p-24},
                                        {2, 0x1p-11}, {2, 0x1p-8},  {1, 0},
                                        {4, 0},       {1, 0x1p-4},  {1, 0x1p-3}};
  const auto number = static_cast<size_t>(type);
  return number < std::size(kFormats) ? kFormats[number] : Format();
}

constexpr std::string_view kNone = "none";
constexpr std::string_view kUnknown = "unknown";

}  // namespace

std::string EnumWord(const google::protobuf::EnumDescriptor& type, int number, char between) {
  constexpr size_t kSuffix = sizeof("UNSPECIFIED") - 1;
  const auto* const value = type.FindValueByNumber(number);
  if (value == nullptr) return "";
  const size_t prefix = type.FindValueByNumber(0)->name().size() - kSuffix;
  std::string word = LowerCase(value->name().substr(prefix));
  std::replace(word.begin(), word.end(), '_', between);
  return word;
}

std::string_view Name(Operation value) { return Word<v1::Operation_descriptor>(value); }
std::string_view Name(DataType value) { return Word<v1::DataType_descriptor>(value); }
std::string_view Name(TensorLayout value) { return Word<v1::TensorLayout_descriptor>(value); }
std::string_view Name(EpilogueOp value) { return Word<v1::EpilogueOp_descriptor>(value); }
std::string_view Name(LibraryConfiguration value) {
  return Word<v1::LibraryConfiguration_descriptor>(value, kUnknown);
}
std::string_view Name(Api value) { return Word<v1::Api_descriptor>(value); }
std::string_view Name(LaunchMode value) { return Word<v1::LaunchMode_descriptor>(value); }
std::string_view Name(Evidence value) { return Word<v1::Evidence_descriptor>(value, kNone); }
std::string_view Name(Origin value) { return Word<v1::Origin_descriptor>(value); }
std::string_view Name(CandidateStatus value) { return Word<v1::CandidateStatus_descriptor>(value); }
std::string_view Name(QuarantineReason value) {
  return Word<v1::QuarantineReason_descriptor>(value);
}
std::string_view Name(NumericalNote value) { return Word<v1::NumericalNote_descriptor>(value); }
std::string_view Name(BehaviorNote value) { return Word<v1::BehaviorNote_descriptor>(value); }
std::string_view Name(CacheState value) { return Word<v1::CacheState_descriptor>(value); }
std::string_view Name(ComputeMode value) {
  return Word<v1::ComputeMode_descriptor>(value, kUnknown);
}

std::optional<Operation> ParseOperation(std::string_view text) {
  return Find<Operation, v1::Operation_descriptor>(text);
}
std::optional<DataType> ParseDataType(std::string_view text) {
  return Find<DataType, v1::DataType_descriptor>(text);
}
std::optional<EpilogueOp> ParseEpilogueOp(std::string_view text) {
  return Find<EpilogueOp, v1::EpilogueOp_descriptor>(text);
}
std::optional<LibraryConfiguration> ParseLibraryConfiguration(std::string_view text) {
  return Find<LibraryConfiguration, v1::LibraryConfiguration_descriptor>(text, kUnknown);
}
std::optional<Evidence> ParseEvidence(std::string_view text) {
  return Find<Evidence, v1::Evidence_descriptor>(text, kNone);
}

std::optional<DataType> ParseLooseDataType(std::string_view text) {
  const std::string name = LowerCase(Strip(text));
  if (const std::optional<DataType> type = ParseDataType(name)) return type;
  static constexpr std::pair<std::string_view, DataType> kSpellings[] = {
      {"double", DataType::kF64},    {"fp64", DataType::kF64}, {"float64", DataType::kF64},
      {"float", DataType::kF32},     {"fp32", DataType::kF32}, {"float32", DataType::kF32},
      {"half", DataType::kF16},      {"fp16", DataType::kF16}, {"float16", DataType::kF16},
      {"bfloat16", DataType::kBF16}, {"int8", DataType::kI8},  {"fp8_e4m3", DataType::kE4M3},
      {"fp8_e5m2", DataType::kE5M2},
  };
  for (const auto& [spelling, type] : kSpellings) {
    if (name == spelling) return type;
  }
  return std::nullopt;
}

int64_t SizeOf(DataType type) { return FormatOf(type).bytes; }

double UnitRoundoff(DataType type) { return FormatOf(type).roundoff; }

}  // namespace convtune
