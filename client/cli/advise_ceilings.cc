#include "client/cli/advise_ceilings.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/cli/batch_get.h"
#include "client/cli/tuning_run.h"

namespace convtune {
namespace {

constexpr size_t kMostProblems = 10'000;
constexpr int kPageSize = 1000;

constexpr char kArithmetic[] = "fwd,x=32x2048x32x32,w=2048x2048x1x1";

// What probes attain, by place in `probes`: 0 where there is no time.
std::vector<double> ProbeTimes(Context& context, const std::vector<CeilingProbe>& probes,
                               bool forbid_tf32) {
  v1::BatchGetRequest request;
  request.set_environment(context.settings().environment);
  request.mutable_constraints()->set_forbid_tf32(forbid_tf32);
  std::vector<ProblemRow> problems;
  for (const CeilingProbe& probe : probes) problems.push_back({probe.problem, 1, "probe"});
  const BatchAnswers answers =
      BatchGetAll(context, request, problems, context.settings().client.timeout);
  std::vector<double> times(probes.size(), 0);
  if (answers.rows.size() != probes.size()) return times;
  for (size_t i = 0; i < probes.size(); ++i) {
    times[i] = answers.rows[i].result.answer().winner().median_us();
  }
  return times;
}

void RaiseByProbe(const CeilingProbe& probe, bool forbid_tf32, double time_us, Ceilings* ceilings) {
  if (!(time_us > 0)) return;
  Raise(probe.problem, forbid_tf32, time_us, ceilings);
  if (probe.limit == Bound::kMemory) {
    ceilings->gbytes.probed = true;
  } else {
    ceilings->tflops[{probe.problem.data_type(), forbid_tf32}].probed = true;
  }
}

std::vector<ProblemRow> MeasuredProblems(Context& context, const std::set<std::string>& but) {
  std::vector<ProblemRow> problems;
  const auto client = context.Connect();
  if (!client.ok()) return problems;
  v1::ListTuningsRequest request;
  request.set_environment(context.settings().environment);
  request.set_page_size(kPageSize);
  do {
    const auto page = (*client)->ListTunings(request);
    if (!page.ok()) break;
    for (const v1::Tuning& tuning : page->tunings()) {
      if (tuning.evidence() < v1::EVIDENCE_INCOMPLETE || but.count(tuning.problem_text()) > 0) {
        continue;
      }
      auto problem = ConvProblem::Parse(tuning.problem_text());
      if (problem.ok()) problems.push_back({*std::move(problem), 1, "stored"});
    }
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty() && problems.size() < kMostProblems);
  return problems;
}

}  // namespace

std::vector<CeilingProbe> MakeCeilingProbes(const std::set<DataType>& types) {
  std::vector<CeilingProbe> probes;
  const auto add = [&](const std::string& text, Bound limit) {
    auto problem = ConvProblem::Parse(text);
    if (problem.ok()) probes.push_back({*std::move(problem), limit});
  };
  for (const DataType type : types) {
    const std::string name(Name(type));
    add(absl::StrCat(kArithmetic, ",nhwc,", name), Bound::kCompute);
    if (type == DataType::kF32 || type == DataType::kF64) {
      add(absl::StrCat(kArithmetic, ",nchw,", name), Bound::kCompute);
    }
  }
  add("fwd,x=128x64x112x112,w=64x64x1x1,nhwc,f16", Bound::kMemory);
  add("fwd,x=128x32x112x112,w=32x32x1x1,nhwc,f32", Bound::kMemory);
  return probes;
}

absl::Status RaiseByProbes(Context& context, const v1::CreateTuningJobRequest& request,
                           const std::set<DataType>& types, Ceilings* ceilings) {
  const std::vector<CeilingProbe> probes = MakeCeilingProbes(types);
  std::vector<ProblemRow> problems;
  for (const CeilingProbe& probe : probes) problems.push_back({probe.problem, 1, "probe"});
  if (RunTuning(context, request, problems).cancelled) {
    return absl::CancelledError("the probes of the card's ceilings");
  }
  for (const bool forbid_tf32 : {false, true}) {
    const std::vector<double> times = ProbeTimes(context, probes, forbid_tf32);
    for (size_t i = 0; i < probes.size(); ++i) {
      if (forbid_tf32 && probes[i].problem.data_type() != DataType::kF32) continue;
      RaiseByProbe(probes[i], forbid_tf32, times[i], ceilings);
    }
  }
  return absl::OkStatus();
}

void RaiseByStored(Context& context, const std::set<std::string>& but, Ceilings* ceilings) {
  const std::vector<ProblemRow> problems = MeasuredProblems(context, but);
  if (problems.empty()) return;
  v1::BatchGetRequest request;
  request.set_environment(context.settings().environment);
  const BatchAnswers answers =
      BatchGetAll(context, request, problems, context.settings().client.timeout);
  for (size_t i = 0; i < std::min(answers.rows.size(), problems.size()); ++i) {
    Raise(problems[i].problem, false, answers.rows[i].result.answer().winner().median_us(),
          ceilings);
  }
}

}  // namespace convtune
