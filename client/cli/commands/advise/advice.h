// An AdviceRow is one convolution in one layout, data type and batch size, with
// the daemon's answer. The functions compare rows with each other and with the
// GPU's ceilings; they compute only from what the answers hold.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "convtune/v1/tuning_service.pb.h"
#include "proto/model/problem/conv_problem.h"

namespace convtune::cli {

// What a probe of the GPU is limited by.
enum class Probe { kNone, kCompute, kMemory };

// Value type.
struct AdviceRow {
  ConvProblem problem;
  bool forbid_tf32 = false;     // f32 inputs, without tensor cores
  bool asked = false;           // the problem as it was given
  Probe probe = Probe::kNone;   // made to find a ceiling
  v1::BatchGetResult result{};  // filled in by whoever asks the daemon
  // 0 where nothing was timed.
  double time_us = 0;
  double tflops = 0;    // of EstimatedFlops
  double gbytes = 0;    // GB/s, had every tensor moved once
  double speed_up = 0;  // per image, against the problem as given

  int64_t batch() const { return problem.x_dims()[0]; }
};

// The problem in NCHW and NHWC, in its own data type and each of `types`, with
// each of `batches` (its own if empty); for f32 with and without TF32. Output,
// compute and intermediate types are the usual ones of the data type but for the
// problem as it was given, which is the first. What the data type does not allow
// is left out. INVALID_ARGUMENT if the problem has strides of its own.
absl::StatusOr<std::vector<AdviceRow>> MakeRows(const ConvProblem& problem,
                                                const std::vector<DataType>& types,
                                                const std::vector<int64_t>& batches);

// Convolutions that nothing but arithmetic, or nothing but memory, limits on any
// GPU that cuDNN supports, for rows of these types. For arithmetic 1x1
// convolutions over 2,048 channels, which are matrix products of 275 GFLOP with
// 990 operations for each byte of an f16 tensor; in f32 and f64 in both layouts.
// For memory 1x1 convolutions over so few channels that the tensors' 0.4 GB and
// more, beyond any GPU's caches, take longer than the arithmetic.
std::vector<AdviceRow> MakeProbes(const std::set<DataType>& types);

// Takes the figures of the rows, all but `speed_up`, from their results.
void TakeFigures(std::vector<AdviceRow>* rows);
// Fills in `speed_up`; the row that was asked for is the first.
void Compare(std::vector<AdviceRow>* rows);

// The best of some measured figures.
struct BestSeen {
  double value = 0;
  int count = 0;        // of figures
  bool probed = false;  // one of them is a probe's
};

// The best that convolutions attain on this GPU. Value type.
struct Ceilings {
  // TFLOP/s by data type and whether TF32 was forbidden.
  std::map<std::pair<DataType, bool>, BestSeen> tflops;
  BestSeen gbytes;  // GB/s, of all

  // Takes in the rows that were timed.
  void Add(const std::vector<AdviceRow>& rows);
};

// Without a probe, other measurements than its own that a row is held against
// at least.
inline constexpr int kFewestOthers = 5;

// "launch" where the host needs at least as long for a launch as the GPU for the
// work, so that launches one after the other go at the host's pace; else the
// ceiling that is nearest, "compute 62%" or "memory 91%". "-" where nothing was
// timed, and where a ceiling was not probed and has fewer than kFewestOthers
// measurements but for the row's own, which is among them, or is the row itself.
// After the roofline model (Williams, Waterman and Patterson, CACM 52(4), 2009).
std::string BoundWord(const AdviceRow& row, const Ceilings& ceilings);
// "tf32", "no tf32"; empty but for f32.
std::string MathWord(const AdviceRow& row);
// The ceilings that rows are held against, and which of them were not probed.
std::string CeilingWords(const Ceilings& ceilings);
// Which is the fastest per image, by how much, and what is to be known of that:
// the numerical error where its data type or math is narrower than what was
// asked for, and evidence that is below MEASURED. A row with such evidence is
// named as the fastest only where no row has better. The row that was asked for
// is the first.
std::string Conclude(const std::vector<AdviceRow>& rows);

}  // namespace convtune::cli
