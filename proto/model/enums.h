// Enumerations of the model. Their numbers are those of convtune.v1 and are
// persisted: never renumber.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace google::protobuf {
class EnumDescriptor;
}

namespace convtune {

enum class Operation { kFwd = 1, kBwdData = 2, kBwdFilter = 3 };
enum class DataType {
  kF64 = 1,
  kF32 = 2,
  kF16 = 3,
  kBF16 = 4,
  kI8 = 5,
  kI32 = 6,
  kE4M3 = 7,
  kE5M2 = 8
};
enum class TensorLayout { kNchw = 1, kNhwc = 2, kStrided = 3 };
enum class ConvolutionMode { kCrossCorrelation = 1, kConvolution = 2 };
enum class EpilogueOp { kAdd = 1, kBias = 2, kRelu = 3 };
enum class LibraryConfiguration { kUnknown = 0, kFull = 1, kGraphJitOnly = 2 };
enum class Api { kAny = 1, kGraph = 2, kLegacy = 3 };
enum class LaunchMode { kEager = 1, kGraphCapture = 2 };
// The content of the GPU's caches before a timed run. kCold: none of the run's tensors.
// kInputHot: x alone, which the layer before wrote. kHot: all of them.
enum class CacheState { kCold = 1, kInputHot = 2, kHot = 3 };
// Whether a candidate could be captured into a CUDA graph; kUnknown: not tried.
enum class CaptureSupport { kUnknown = 0, kYes = 1, kNo = 2 };
// The reason for which the race between candidates ended; kNone: there was no race.
enum class StopReason {
  kNone = 0,
  kOneCandidate = 1,
  kSettled = 2,
  kNoiseSettled = 3,
  kRounds = 4,
  kBudget = 5
};
// NVML's compute mode.
enum class ComputeMode {
  kUnknown = 0,
  kDefault = 1,
  kExclusiveThread = 2,
  kProhibited = 3,
  kExclusiveProcess = 4
};
enum class Evidence {
  kNone = 0,
  kHeuristic = 10,
  kObserved = 20,
  kIncomplete = 30,
  kMeasured = 40
};
enum class Origin { kLocal = 1, kImported = 2, kFleet = 3 };
enum class CandidateStatus {
  kTimed = 1,
  kFinalized = 2,
  kUnsupported = 3,
  kFailed = 4,
  kSkippedMemory = 5,
  kSkippedBudget = 6,
  kQuarantined = 7,
  kUnjudged = 8  // it ran, and whether its result is right could not be found out
};

// The reason for which a candidate is quarantined: it crashed its worker, did not end,
// or computed a wrong result.
enum class QuarantineReason {
  kCrashed = 1,
  kHung = 2,
  kWrongResult = 3,
  kNotFinite = 4,
  kOutOfBounds = 5
};

// A reason for which a tuning is not MEASURED; bit n of a mask is 1 << n.
enum class IncompleteReason {
  kFirstConfigsOnly = 1,      // a heuristic look-up, which stops early
  kBudgetEnded = 2,           // with more time there would be more to know
  kListingCut = 3,            // the budget or the candidate limit ended the listing
  kOneApi = 4,                // one of cuDNN's APIs was searched, by request
  kConditions = 5,            // the GPU was contended, throttled or broken
  kNotTimed = 6,              // candidates that work were not timed
  kMemory = 7,                // candidates were skipped for memory
  kUnjudged = 8,              // no result could be judged
  kSomeUnjudged = 9,          // results of some candidates could not be judged
  kGraphStockUnjudged = 10,   // that of the graph API's stock choice
  kLegacyStockUnjudged = 11,  // that of the legacy API's stock choice
  kStockFailed = 12,          // what an API lists first failed: the baseline is another
  kAllQuarantined = 13,       // all candidates that ran are quarantined
  kOtherApiCarried = 14,      // the other API's candidates are of a tuning before
  kObserved = 15,             // a program settled on it, and nothing else was tried
  kOutdated = 16,             // measured with other libraries than there are; never stored
  kFindLeftOut = 17,          // the problem is too large for cudnnFind*
  kNoClock = 18               // the worker's clocks do not agree
};
constexpr uint32_t ReasonBit(IncompleteReason reason) { return 1U << static_cast<int>(reason); }

// cuDNN's numerical notes; the bit of note n in a mask is 1 << n.
enum class NumericalNote {
  kTensorCore = 1,
  kDownConvertInputs = 2,
  kReducedPrecisionReduction = 3,
  kFft = 4,
  kNondeterministic = 5,
  kWinograd = 6,
  kWinogradTile4x4 = 7,
  kWinogradTile6x6 = 8,
  kWinogradTile13x13 = 9,
  kStrictNanProp = 10
};
enum class BehaviorNote {
  kRuntimeCompilation = 1,
  kRequiresFilterInt8x32Reorder = 2,
  kRequiresBiasInt8x32Reorder = 3,
  kSupportsCudaGraphNativeApi = 4,
  kCublasLtDependency = 5
};

constexpr uint32_t NoteBit(NumericalNote note) { return 1U << static_cast<int>(note); }
constexpr uint32_t NoteBit(BehaviorNote note) { return 1U << static_cast<int>(note); }

// OPERATION_BWD_DATA as "bwd_data", with `between` for the underscores; "" for a number that is
// not in the enumeration. Thread-safe.
std::string EnumWord(const google::protobuf::EnumDescriptor& type, int number, char between = '_');

// Words, as in the text form, the CLI and the reports: the names that convtune.v1 has, in lower
// case and without the enumeration's own name; "invalid" for numbers that it has not. The
// readers accept just these and return nullopt for anything else.
std::string_view Name(Operation value);
std::string_view Name(DataType value);
std::string_view Name(TensorLayout value);
std::string_view Name(EpilogueOp value);
std::string_view Name(LibraryConfiguration value);
std::string_view Name(Api value);
std::string_view Name(LaunchMode value);
std::string_view Name(Evidence value);
std::string_view Name(Origin value);
std::string_view Name(CandidateStatus value);
std::string_view Name(QuarantineReason value);
std::string_view Name(NumericalNote value);
std::string_view Name(BehaviorNote value);
std::string_view Name(CacheState value);
std::string_view Name(ComputeMode value);
std::optional<Operation> ParseOperation(std::string_view text);
std::optional<DataType> ParseDataType(std::string_view text);
// The spellings that people and workload files use, too, in any case: f16, half,
// fp16, float16 and so on.
std::optional<DataType> ParseLooseDataType(std::string_view text);
std::optional<EpilogueOp> ParseEpilogueOp(std::string_view text);
std::optional<LibraryConfiguration> ParseLibraryConfiguration(std::string_view text);
std::optional<Evidence> ParseEvidence(std::string_view text);

// Size of an element in bytes.
int64_t SizeOf(DataType type);
// Half of the distance between 1 and the next number; 0 for integers.
double UnitRoundoff(DataType type);

}  // namespace convtune
