#include "client/cli/commands/advise/advice.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/calls/answer_output.h"
#include "proto/convert/problem_order.h"

namespace convtune::cli {
namespace {

constexpr char kArithmetic[] = "fwd,x=32x2048x32x32,w=2048x2048x1x1,";

absl::StatusOr<ConvProblem> Change(const ConvProblem& problem, int64_t batch, TensorLayout layout,
                                   DataType data_type) {
  ConvProblemSpec spec;
  spec.operation = problem.operation();
  spec.x_dims = problem.x_dims();
  spec.x_dims[0] = batch;
  spec.w_dims = problem.w_dims();
  spec.pad_low = problem.pad_low();
  spec.pad_high = problem.pad_high();
  spec.strides = problem.strides();
  spec.dilations = problem.dilations();
  spec.groups = problem.groups();
  spec.data_type = data_type;
  spec.layout = layout;
  spec.mode = problem.mode();
  spec.epilogue = problem.epilogue();
  spec.alignment_bytes = problem.alignment_bytes();
  if (problem.sm_count_target() != 0) spec.sm_count_target = problem.sm_count_target();
  return ConvProblem::Create(spec);
}

// Adds the problem, unless it is there, and for f32 once more without TF32.
void AddRow(const ConvProblem& problem, bool asked, Probe probe, std::vector<AdviceRow>* rows) {
  for (const AdviceRow& row : *rows) {
    if (row.problem == problem) return;
  }
  rows->push_back({problem, false, asked, probe});
  if (problem.data_type() == DataType::kF32) rows->push_back({problem, true, false, probe});
}

v1::Evidence EvidenceOf(const AdviceRow& row) { return row.result.answer().evidence(); }
std::string EvidenceWords(const AdviceRow& row) {
  return EvidenceWord(EvidenceOf(row)) + " evidence only";
}
bool IsMeasured(const AdviceRow& row) { return EvidenceOf(row) >= v1::EVIDENCE_MEASURED; }

// Bits of the exponent and of the significand (with the implied one) that an
// input keeps.
std::pair<int, int> BitsOf(const AdviceRow& row) {
  static const std::map<DataType, std::pair<int, int>> kBits = {
      {DataType::kF64, {11, 53}}, {DataType::kF32, {8, 11}}, {DataType::kF16, {5, 11}},
      {DataType::kBF16, {8, 8}},  {DataType::kI8, {0, 7}},   {DataType::kI32, {0, 31}},
      {DataType::kE4M3, {4, 4}},  {DataType::kE5M2, {5, 3}},
  };
  return row.forbid_tf32 ? std::pair(8, 24) : kBits.at(row.problem.data_type());
}

bool IsNarrower(const AdviceRow& row, const AdviceRow& asked) {
  return BitsOf(row).first < BitsOf(asked).first || BitsOf(row).second < BitsOf(asked).second;
}

std::string ErrorWord(const AdviceRow& row) {
  const v1::Candidate& winner = row.result.answer().winner();
  return winner.has_error() ? absl::StrFormat("%.1e", winner.error()) : "not known";
}

std::string NameOf(const AdviceRow& row) {
  const std::string math = MathWord(row);
  return absl::StrCat("batch ", row.batch(), ", ", std::string(Name(row.problem.layout())), ", ",
                      std::string(Name(row.problem.data_type())),
                      math.empty() ? "" : " (" + math + ")");
}

void Raise(double figure, bool probed, BestSeen* best) {
  best->value = std::max(best->value, figure);
  best->probed = best->probed || probed;
  ++best->count;
}

// The share of what others attain; 0 where that says nothing.
double ShareOf(double figure, const BestSeen& best) {
  const bool known = best.probed || (best.count > kFewestOthers && figure < best.value);
  return known ? std::min(figure / best.value, 1.0) : 0;
}

}  // namespace

absl::StatusOr<std::vector<AdviceRow>> MakeRows(const ConvProblem& problem,
                                                const std::vector<DataType>& types,
                                                const std::vector<int64_t>& batches) {
  if (problem.layout() == TensorLayout::kStrided) {
    return absl::InvalidArgumentError("PROBLEM: must be nchw or nhwc, without strides of its own");
  }
  std::vector<DataType> all = {problem.data_type()};
  all.insert(all.end(), types.begin(), types.end());
  const std::vector<int64_t> own = {problem.x_dims()[0]};
  std::vector<AdviceRow> rows;
  AddRow(problem, true, Probe::kNone, &rows);
  for (const int64_t batch : batches.empty() ? own : batches) {
    for (const TensorLayout layout : {TensorLayout::kNchw, TensorLayout::kNhwc}) {
      for (const DataType type : all) {
        const auto changed = Change(problem, batch, layout, type);
        if (changed.ok()) AddRow(*changed, false, Probe::kNone, &rows);
      }
    }
  }
  return rows;
}

std::vector<AdviceRow> MakeProbes(const std::set<DataType>& types) {
  std::vector<AdviceRow> probes;
  for (const DataType type : types) {
    const bool wide = type == DataType::kF32 || type == DataType::kF64;
    for (const std::string layout : {"nhwc,", "nchw,"}) {
      if (layout == "nchw," && !wide) continue;
      const auto problem =
          ConvProblem::Parse(absl::StrCat(kArithmetic, layout, std::string(Name(type))));
      if (problem.ok()) AddRow(*problem, false, Probe::kCompute, &probes);
    }
  }
  for (const char* text :
       {"fwd,x=128x64x112x112,w=64x64x1x1,nhwc,f16", "fwd,x=128x32x112x112,w=32x32x1x1,nhwc,f32"}) {
    AddRow(*ConvProblem::Parse(text), false, Probe::kMemory, &probes);
  }
  return probes;
}

void TakeFigures(std::vector<AdviceRow>* rows) {
  for (AdviceRow& row : *rows) {
    row.time_us = row.result.has_answer() ? row.result.answer().winner().median_us() : 0;
    if (!(row.time_us > 0)) continue;
    // 1e6 per microsecond is 1e12 per second.
    row.tflops = EstimatedFlops(row.problem) / row.time_us / 1e6;
    row.gbytes = static_cast<double>(row.problem.TensorBytes()) / row.time_us / 1e3;
  }
}

void Compare(std::vector<AdviceRow>* rows) {
  const AdviceRow& asked = rows->front();
  const double per_image = asked.time_us / static_cast<double>(asked.batch());
  for (AdviceRow& row : *rows) {
    if (row.time_us > 0)
      row.speed_up = per_image / (row.time_us / static_cast<double>(row.batch()));
  }
}

void Ceilings::Add(const std::vector<AdviceRow>& rows) {
  for (const AdviceRow& row : rows) {
    if (!(row.time_us > 0)) continue;
    Raise(row.tflops, row.probe == Probe::kCompute,
          &tflops[{row.problem.data_type(), row.forbid_tf32}]);
    Raise(row.gbytes, row.probe == Probe::kMemory, &gbytes);
  }
}

std::string BoundWord(const AdviceRow& row, const Ceilings& ceilings) {
  if (!(row.time_us > 0)) return "-";
  if (row.result.answer().winner().host_us() >= row.time_us) return "launch";
  const auto most = ceilings.tflops.find({row.problem.data_type(), row.forbid_tf32});
  if (most == ceilings.tflops.end()) return "-";
  const double compute = ShareOf(row.tflops, most->second);
  const double memory = ShareOf(row.gbytes, ceilings.gbytes);
  if (compute == 0 || memory == 0) return "-";
  return compute >= memory ? absl::StrFormat("compute %.0f%%", 100 * compute)
                           : absl::StrFormat("memory %.0f%%", 100 * memory);
}

std::string MathWord(const AdviceRow& row) {
  if (row.problem.data_type() != DataType::kF32) return "";
  return row.forbid_tf32 ? "no tf32" : "tf32";
}

std::string CeilingWords(const Ceilings& ceilings) {
  std::string words = "BOUND: the nearest to the GPU's ceilings, measured by probes";
  std::vector<std::string> not_probed;
  const auto add = [&](const std::string& name, const char* unit, int digits,
                       const BestSeen& best) {
    if (best.probed) {
      absl::StrAppendFormat(&words, "; %s %.*f %s", name, digits, best.value, unit);
    } else if (best.count > 0) {
      not_probed.push_back(name);
    }
  };
  add("memory", "GB/s", 0, ceilings.gbytes);
  for (const auto& [type, most] : ceilings.tflops) {
    add(absl::StrCat(std::string(Name(type.first)), type.second ? " without tf32" : ""), "TFLOP/s",
        1, most);
  }
  if (!not_probed.empty()) {
    absl::StrAppend(&words, ". Not probed: ", absl::StrJoin(not_probed, ", "),
                    "; there it is the best seen, and - with fewer than ", kFewestOthers,
                    " others");
  }
  return words + ".";
}

std::string Conclude(const std::vector<AdviceRow>& rows) {
  const auto faster = [](const AdviceRow& a, const AdviceRow& b) {
    return a.speed_up < b.speed_up;
  };
  const AdviceRow& fastest = *std::max_element(rows.begin(), rows.end(), faster);
  if (!(fastest.speed_up > 0)) {
    return "Nothing was timed, so nothing is said of speed: that needs a GPU.";
  }
  const AdviceRow& asked = rows.front();
  // The fastest of those that are measured, or of all.
  const AdviceRow& best =
      *std::max_element(rows.begin(), rows.end(), [&](const AdviceRow& a, const AdviceRow& b) {
        const auto rank = [](const AdviceRow& row) {
          return std::tuple(row.speed_up > 0, IsMeasured(row), row.speed_up);
        };
        return rank(a) < rank(b);
      });
  std::string words;
  if (best.asked) {
    words = "As it was asked for, it is the fastest of these.";
  } else {
    words = absl::StrFormat("The most per image: %s, %.2f times as fast as asked for.",
                            NameOf(best), best.speed_up);
    if (IsNarrower(best, asked)) {
      absl::StrAppend(&words, " Its type is narrower: the numerical error is ", ErrorWord(best),
                      ", as asked for ", ErrorWord(asked), ".");
    }
  }
  if (!IsMeasured(best)) {
    absl::StrAppend(&words, " No recommendation: its evidence is ", EvidenceWord(EvidenceOf(best)),
                    " only.");
  } else if (!IsMeasured(asked)) {
    absl::StrAppend(&words, " How much faster is not certain: what was asked for has ",
                    EvidenceWords(asked), ".");
  }
  if (&fastest != &best) {
    absl::StrAppend(&words, " Faster, but with ", EvidenceWords(fastest), ": ", NameOf(fastest),
                    ".");
  }
  return words;
}

}  // namespace convtune::cli
