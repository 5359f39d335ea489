#include "client/preload/serve/legacy.h"

#include <float.h>

#include <algorithm>

#include "client/preload/process/counters.h"
#include "client/preload/process/device.h"
#include "client/preload/report/problems.h"
#include "client/preload/state/state.h"
#include "proto/model/tuning/note_rules.h"

namespace convtune::preload::serve {
namespace {

constexpr int kMostResults = 16;

// The longest side of the filter.
int64_t FilterExtent(const snapshot::ProblemKey& key) {
  return *std::max_element(key.w_dims + 2, key.w_dims + 2 + key.spatial_rank);
}

// What cuDNN's own first choice under this call's limits is like.
bool LegacyStock(const LegacyCall& call, const report::Problem& problem, const LegacyResult* own,
                 int count, snapshot::StockChoice* stock) {
  for (int i = 0; i < count; ++i) {
    if (own[i].status == CUDNN_STATUS_SUCCESS && own[i].memory <= call.workspace_limit) {
      const snapshot::ProblemKey& key = problem.key;
      *stock = {1, LegacyNotes(call.operation, key.data_type, FilterExtent(key), own[i]), 0, 0,
                static_cast<int64_t>(own[i].memory)};
      return true;
    }
  }
  return false;
}

bool Has(const LegacyResult* results, int count, const LegacyResult& wanted) {
  for (int i = 0; i < count; ++i) {
    if (results[i].algo == wanted.algo && results[i].mathType == wanted.mathType) {
      return true;
    }
  }
  return false;
}

// The stored algorithms that the call allows. Returns how many; `reason` says
// why where there are none.
int Choose(const state::State& state, const LegacyCall& call, const report::Problem& problem,
           cudnnMathType_t math, const snapshot::StockChoice& stock, LegacyResult* results,
           int most, snapshot::UnservedReason* reason) {
  const snapshot::SnapshotEntry& entry = *problem.entry;
  const snapshot::SnapshotCandidate* candidates = state.view.candidates(entry);
  int count = 0;
  *reason = snapshot::UnservedReason::kNoEntry;
  for (int i = 0; i < entry.candidate_count && count < most; ++i) {
    const snapshot::SnapshotCandidate& candidate = candidates[i];
    if (candidate.api != snapshot::kApiLegacy) {
      continue;
    }
    *reason = snapshot::UnservedReason::kNotNeutral;
    size_t bytes = 0;
    if (!IsMathAllowed(candidate.math_type, math) ||
        !snapshot::IsNeutral(
            state.settings.allow_notes ? stock.numerical_notes : candidate.numerical_notes, 0,
            stock.numerical_notes, 0)) {
      continue;
    }
    const auto algorithm = static_cast<int>(candidate.number);
    if (!LegacyWorkspace(call, algorithm, &bytes)) {
      *reason = snapshot::UnservedReason::kRefused;
      continue;
    }
    if (bytes > call.workspace_limit ||
        (!state.settings.allow_workspace && static_cast<int64_t>(bytes) > stock.workspace_bytes)) {
      continue;
    }
    LegacyResult& result = results[count++];
    result = {};
    result.algo = algorithm;
    result.status = CUDNN_STATUS_SUCCESS;
    result.time = call.timed ? candidate.time_us / 1000.0F : -1.0F;
    result.memory = bytes;
    result.determinism = (candidate.flags & snapshot::kDeterministic) != 0
                             ? CUDNN_DETERMINISTIC
                             : CUDNN_NON_DETERMINISTIC;
    result.mathType = static_cast<cudnnMathType_t>(candidate.math_type);
  }
  return count;
}

// cuDNN's own list behind ours, without a search. What was not timed sorts
// behind what was: some programs take the smallest time.
int AppendOwn(const LegacyCall& call, const LegacyResult* own, int own_count, int count) {
  for (int i = 0; i < own_count && count < call.requested; ++i) {
    if (Has(call.results, count, own[i]) || own[i].memory > call.workspace_limit) {
      continue;
    }
    call.results[count] = own[i];
    if (call.timed && own[i].status == CUDNN_STATUS_SUCCESS) {
      call.results[count].time = FLT_MAX;
    }
    ++count;
  }
  return count;
}

}  // namespace

uint32_t LegacyNotes(int operation, uint8_t data_type, int64_t filter_extent,
                     const LegacyResult& result) {
  return convtune::LegacyNotes(static_cast<Operation>(operation), static_cast<DataType>(data_type),
                               filter_extent, result.algo, result.mathType,
                               result.determinism == CUDNN_DETERMINISTIC);
}

bool IsMathAllowed(int candidate, cudnnMathType_t allowed) {
  const auto freedom = [](int math) {
    return math == CUDNN_FMA_MATH                          ? 0
           : math == CUDNN_DEFAULT_MATH                    ? 1
           : math == CUDNN_TENSOR_OP_MATH                  ? 2
           : math == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION ? 3
                                                           : 4;
  };
  return freedom(candidate) <= freedom(allowed) && freedom(allowed) < 4;
}

bool ServeLegacy(const LegacyCall& call, report::Problem** problem) {
  *problem = nullptr;
  process::Count(&process::counters.legacy_calls);
  const state::State& state = state::GetState();
  snapshot::ProblemKey key;
  snapshot::EnvironmentKey environment;
  cudnnMathType_t math = {};
  if (call.requested < 1 || call.returned == nullptr || call.results == nullptr ||
      !MakeLegacyKey(call, &key, &math) || !process::CurrentEnvironment(&environment)) {
    process::Count(&process::counters.passed);
    return false;
  }
  *problem = report::FindProblem(environment, key, snapshot::HashOf(key));
  if (*problem == nullptr) {
    process::Count(&process::counters.passed);
    return false;
  }
  process::Count(&process::counters.queries);
  if ((*problem)->entry == nullptr) {
    report::NoteMiss(*problem, (*problem)->why);
    return false;
  }
  if (state.settings.policy == state::Policy::kObserve || state::Killed(state)) {
    process::Count(&process::counters.observed);
    return false;
  }
  LegacyResult own[kMostResults];
  const int own_count = LegacyHeuristics(call, kMostResults, own);
  snapshot::StockChoice stock = {};
  snapshot::UnservedReason reason = snapshot::UnservedReason::kNotNeutral;
  int count = 0;
  if (LegacyStock(call, **problem, own, own_count, &stock)) {
    count = Choose(state, call, **problem, math, stock, call.results, call.requested, &reason);
  }
  if (count == 0) {
    report::NoteMiss(*problem, reason);
    return false;
  }
  if (state.settings.policy != state::Policy::kTruncate) {
    count = AppendOwn(call, own, own_count, count);
  }
  *call.returned = count;
  process::Count(&process::counters.served);
  process::Count(&process::counters.legacy_served);
  return true;
}

void LearnLegacy(const LegacyCall& call, report::Problem* problem) {
  if (problem == nullptr || !call.timed || problem->legacy_told.exchange(true)) {
    return;
  }
  snapshot::ObservedLegacyDatagram datagram = {};
  for (int i = 0; i < *call.returned && datagram.result_count < snapshot::kMaxDatagramResults;
       ++i) {
    const LegacyResult& result = call.results[i];
    if (result.status != CUDNN_STATUS_SUCCESS || !(result.time > 0)) {
      continue;
    }
    datagram.results[datagram.result_count++] = {
        result.algo, result.mathType, result.time * 1000.0F,
        result.determinism == CUDNN_DETERMINISTIC ? 1U : 0U, static_cast<int64_t>(result.memory)};
  }
  if (datagram.result_count > 0 && report::TellLegacy(*problem, &datagram)) {
    process::Count(&process::counters.learned);
  }
}

}  // namespace convtune::preload::serve
