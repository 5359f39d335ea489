// An AdviceRow is one convolution in one layout, data type and batch size, with
// the daemon's answer. The functions compare rows with each other and with the
// GPU's ceilings; they compute only from what the answers hold.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/app/program.h"
#include "convtune/v1/tuning_service.pb.h"
#include "proto/model/problem/conv_problem.h"

namespace convtune::cli::commands::advise {

app::NewVerb NewAdviseCommand;

// The resource that limits a probe of the GPU.
enum class Probe { kNone, kCompute, kMemory };

// Value type. Figures are 0 where nothing was timed.
struct AdviceRow {
  ConvProblem problem;
  bool forbid_tf32 = false;     // f32 inputs, without tensor cores
  bool asked = false;           // the problem as it was given
  Probe probe = Probe::kNone;   // made to find a ceiling
  v1::BatchGetResult result{};  // filled in by whoever asks the daemon

  int64_t batch() const { return problem.x_dims()[0]; }
  double time_us() const { return result.answer().winner().median_us(); }
  double tflops() const;      // of EstimatedFlops
  double gbytes() const;      // GB/s, had every tensor moved once
  double per_second() const;  // images
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
// GPU that cuDNN supports, for the types of the rows that were timed. For arithmetic 1x1
// convolutions over 2,048 channels, which are matrix products of 275 GFLOP with
// 990 operations for each byte of an f16 tensor; in f32 and f64 in both layouts.
// For memory 1x1 convolutions over so few channels that the tensors' 0.4 GB and
// more, beyond any GPU's caches, take longer than the arithmetic.
std::vector<AdviceRow> MakeProbes(const std::vector<AdviceRow>& rows);

// Ceilings are the most that convolutions attain on this GPU. Value type.
struct Ceilings {
  // TFLOP/s by data type and whether TF32 was forbidden.
  std::map<std::pair<DataType, bool>, double> tflops;
  double gbytes = 0;  // GB/s, of all

  // Of the probes that were timed, and of rows that surpass them.
  static Ceilings Of(const std::vector<AdviceRow>& probes, const std::vector<AdviceRow>& rows);
};

// "launch" where the host needs at least as long for a launch as the GPU for the
// work, so that launches one after the other go at the host's pace; else the
// ceiling that is nearest, "compute 62%" or "memory 91%". "-" where nothing was
// timed, and where no probe found a ceiling.
// After the roofline model (Williams, Waterman and Patterson, CACM 52(4), 2009).
std::string BoundWord(const AdviceRow& row, const Ceilings& ceilings);
// The ceilings that rows are held against.
std::string CeilingWords(const Ceilings& ceilings);
// Names the row that is the fastest per image, and by how much. Adds its numerical
// error if its data type or math is narrower than that of the row asked for, and its
// evidence if that is below MEASURED. A row with evidence below MEASURED is named as
// the fastest only if no row has better evidence. REQUIRES: the row asked for is the
// first.
std::string Conclude(const std::vector<AdviceRow>& rows);

}  // namespace convtune::cli::commands::advise
