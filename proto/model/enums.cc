#include "proto/model/enums.h"

#include <utility>

#include "proto/base/strings.h"

namespace convtune {
namespace {

template <typename E>
struct Named {
  E value;
  std::string_view name;
};

constexpr Named<Operation> kOperations[] = {{Operation::kFwd, "fwd"},
                                            {Operation::kBwdData, "bwd_data"},
                                            {Operation::kBwdFilter, "bwd_filter"}};
constexpr Named<DataType> kDataTypes[] = {
    {DataType::kF64, "f64"},   {DataType::kF32, "f32"},   {DataType::kF16, "f16"},
    {DataType::kBF16, "bf16"}, {DataType::kI8, "i8"},     {DataType::kI32, "i32"},
    {DataType::kE4M3, "e4m3"}, {DataType::kE5M2, "e5m2"},
};
constexpr Named<TensorLayout> kLayouts[] = {{TensorLayout::kNchw, "nchw"},
                                            {TensorLayout::kNhwc, "nhwc"},
                                            {TensorLayout::kStrided, "strided"}};
constexpr Named<ConvolutionMode> kModes[] = {{ConvolutionMode::kCrossCorrelation, "xcorr"},
                                             {ConvolutionMode::kConvolution, "conv"}};
constexpr Named<EpilogueOp> kEpilogueOps[] = {
    {EpilogueOp::kAdd, "add"}, {EpilogueOp::kBias, "bias"}, {EpilogueOp::kRelu, "relu"}};
constexpr Named<LibraryConfiguration> kLibraries[] = {
    {LibraryConfiguration::kUnknown, "unknown"},
    {LibraryConfiguration::kFull, "full"},
    {LibraryConfiguration::kGraphJitOnly, "graph_jit_only"}};
constexpr Named<Api> kApis[] = {
    {Api::kAny, "any"}, {Api::kGraph, "graph"}, {Api::kLegacy, "legacy"}};
constexpr Named<LaunchMode> kLaunchModes[] = {{LaunchMode::kEager, "eager"},
                                              {LaunchMode::kGraphCapture, "graph_capture"}};
constexpr Named<Evidence> kEvidences[] = {{Evidence::kNone, "none"},
                                          {Evidence::kHeuristic, "heuristic"},
                                          {Evidence::kObserved, "observed"},
                                          {Evidence::kIncomplete, "incomplete"},
                                          {Evidence::kMeasured, "measured"}};
constexpr Named<Origin> kOrigins[] = {
    {Origin::kLocal, "local"}, {Origin::kImported, "imported"}, {Origin::kFleet, "fleet"}};
constexpr Named<CandidateStatus> kStatuses[] = {
    {CandidateStatus::kTimed, "timed"},
    {CandidateStatus::kFinalized, "finalized"},
    {CandidateStatus::kUnsupported, "unsupported"},
    {CandidateStatus::kFailed, "failed"},
    {CandidateStatus::kSkippedMemory, "skipped_memory"},
    {CandidateStatus::kSkippedBudget, "skipped_budget"},
    {CandidateStatus::kQuarantined, "quarantined"},
    {CandidateStatus::kUnjudged, "unjudged"},
};
constexpr Named<QuarantineReason> kQuarantineReasons[] = {
    {QuarantineReason::kCrashed, "crashed"},           {QuarantineReason::kHung, "hung"},
    {QuarantineReason::kWrongResult, "wrong_result"},  {QuarantineReason::kNotFinite, "not_finite"},
    {QuarantineReason::kOutOfBounds, "out_of_bounds"},
};
constexpr Named<IncompleteReason> kIncompleteReasons[] = {
    {IncompleteReason::kFirstConfigsOnly, "first_configs_only"},
    {IncompleteReason::kBudgetEnded, "budget_ended"},
    {IncompleteReason::kListingCut, "listing_cut"},
    {IncompleteReason::kOneApi, "one_api"},
    {IncompleteReason::kConditions, "conditions"},
    {IncompleteReason::kNotTimed, "not_timed"},
    {IncompleteReason::kMemory, "memory"},
    {IncompleteReason::kUnjudged, "unjudged"},
    {IncompleteReason::kSomeUnjudged, "some_unjudged"},
    {IncompleteReason::kGraphStockUnjudged, "graph_stock_unjudged"},
    {IncompleteReason::kLegacyStockUnjudged, "legacy_stock_unjudged"},
    {IncompleteReason::kStockFailed, "stock_failed"},
    {IncompleteReason::kAllQuarantined, "all_quarantined"},
    {IncompleteReason::kOtherApiCarried, "other_api_carried"},
    {IncompleteReason::kObserved, "observed"},
    {IncompleteReason::kOutdated, "outdated"},
    {IncompleteReason::kFindLeftOut, "find_left_out"},
    {IncompleteReason::kNoClock, "no_clock"},
};
constexpr Named<NumericalNote> kNumericalNotes[] = {
    {NumericalNote::kTensorCore, "tensor_core"},
    {NumericalNote::kDownConvertInputs, "down_convert_inputs"},
    {NumericalNote::kReducedPrecisionReduction, "reduced_precision_reduction"},
    {NumericalNote::kFft, "fft"},
    {NumericalNote::kNondeterministic, "nondeterministic"},
    {NumericalNote::kWinograd, "winograd"},
    {NumericalNote::kWinogradTile4x4, "winograd_tile_4x4"},
    {NumericalNote::kWinogradTile6x6, "winograd_tile_6x6"},
    {NumericalNote::kWinogradTile13x13, "winograd_tile_13x13"},
    {NumericalNote::kStrictNanProp, "strict_nan_prop"},
};
constexpr Named<BehaviorNote> kBehaviorNotes[] = {
    {BehaviorNote::kRuntimeCompilation, "runtime_compilation"},
    {BehaviorNote::kRequiresFilterInt8x32Reorder, "requires_filter_int8x32_reorder"},
    {BehaviorNote::kRequiresBiasInt8x32Reorder, "requires_bias_int8x32_reorder"},
    {BehaviorNote::kSupportsCudaGraphNativeApi, "supports_cuda_graph_native_api"},
    {BehaviorNote::kCublasLtDependency, "cublaslt_dependency"},
};

constexpr Named<CacheState> kCacheStates[] = {
    {CacheState::kCold, "cold"}, {CacheState::kInputHot, "input_hot"}, {CacheState::kHot, "hot"}};
constexpr Named<StopReason> kStopReasons[] = {
    {StopReason::kNone, "none"},       {StopReason::kOneCandidate, "one_candidate"},
    {StopReason::kSettled, "settled"}, {StopReason::kNoiseSettled, "noise_settled"},
    {StopReason::kRounds, "rounds"},   {StopReason::kBudget, "budget"}};
constexpr Named<ComputeMode> kComputeModes[] = {
    {ComputeMode::kUnknown, "unknown"},
    {ComputeMode::kDefault, "default"},
    {ComputeMode::kExclusiveThread, "exclusive_thread"},
    {ComputeMode::kProhibited, "prohibited"},
    {ComputeMode::kExclusiveProcess, "exclusive_process"}};

template <typename E, size_t N>
std::string_view NameIn(const Named<E> (&table)[N], E value) {
  for (const Named<E>& entry : table) {
    if (entry.value == value) return entry.name;
  }
  return "invalid";
}

template <typename E, size_t N>
std::optional<E> FindIn(const Named<E> (&table)[N], std::string_view name) {
  for (const Named<E>& entry : table) {
    if (entry.name == name) return entry.value;
  }
  return std::nullopt;
}

}  // namespace

std::string_view Name(Operation value) { return NameIn(kOperations, value); }
std::string_view Name(DataType value) { return NameIn(kDataTypes, value); }
std::string_view Name(TensorLayout value) { return NameIn(kLayouts, value); }
std::string_view Name(ConvolutionMode value) { return NameIn(kModes, value); }
std::string_view Name(EpilogueOp value) { return NameIn(kEpilogueOps, value); }
std::string_view Name(LibraryConfiguration value) { return NameIn(kLibraries, value); }
std::string_view Name(Api value) { return NameIn(kApis, value); }
std::string_view Name(LaunchMode value) { return NameIn(kLaunchModes, value); }
std::string_view Name(Evidence value) { return NameIn(kEvidences, value); }
std::string_view Name(Origin value) { return NameIn(kOrigins, value); }
std::string_view Name(CandidateStatus value) { return NameIn(kStatuses, value); }
std::string_view Name(QuarantineReason value) { return NameIn(kQuarantineReasons, value); }
std::string_view Name(IncompleteReason value) { return NameIn(kIncompleteReasons, value); }
std::string_view Name(NumericalNote value) { return NameIn(kNumericalNotes, value); }
std::string_view Name(BehaviorNote value) { return NameIn(kBehaviorNotes, value); }
std::string_view Name(CacheState value) { return NameIn(kCacheStates, value); }
std::string_view Name(StopReason value) { return NameIn(kStopReasons, value); }
std::string_view Name(ComputeMode value) { return NameIn(kComputeModes, value); }

std::optional<Operation> ParseOperation(std::string_view text) { return FindIn(kOperations, text); }
std::optional<DataType> ParseDataType(std::string_view text) { return FindIn(kDataTypes, text); }
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

std::optional<EpilogueOp> ParseEpilogueOp(std::string_view text) {
  return FindIn(kEpilogueOps, text);
}
std::optional<LibraryConfiguration> ParseLibraryConfiguration(std::string_view text) {
  return FindIn(kLibraries, text);
}
std::optional<Api> ParseApi(std::string_view text) { return FindIn(kApis, text); }
std::optional<Evidence> ParseEvidence(std::string_view text) { return FindIn(kEvidences, text); }

int64_t SizeOf(DataType type) {
  switch (type) {
    case DataType::kF64:
      return 8;
    case DataType::kF32:
    case DataType::kI32:
      return 4;
    case DataType::kF16:
    case DataType::kBF16:
      return 2;
    case DataType::kI8:
    case DataType::kE4M3:
    case DataType::kE5M2:
      return 1;
  }
  return 0;
}

double UnitRoundoff(DataType type) {
  switch (type) {
    case DataType::kF64:
      return 0x1p-53;
    case DataType::kF32:
      return 0x1p-24;
    case DataType::kF16:
      return 0x1p-11;
    case DataType::kBF16:
      return 0x1p-8;
    case DataType::kE4M3:
      return 0x1p-4;
    case DataType::kE5M2:
      return 0x1p-3;
    case DataType::kI8:
    case DataType::kI32:
      return 0;
  }
  return 0;
}

}  // namespace convtune
