#include "server/worker/timing/timer.h"

#include <cmath>
#include <optional>

#include "proto/base/clock.h"
#include "proto/base/status_macros.h"

namespace convtune::worker::timing {
namespace {

// Leaves nothing of the work's memory in the caches, together with the read of copy 0's input that
// comes next.
absl::Status Flush(const TimedWork& work, TimedStream* stream) {
  if (work.cache_state == CacheState::kHot) return absl::OkStatus();
  const bool warms = work.cache_state == CacheState::kInputHot && !work.inputs.empty();
  return stream->Flush(warms ? work.inputs[0].bytes : 0);
}

absl::Status Queue(const TimedWork& work, int runs, int copies, TimedStream* stream,
                   double* host_us) {
  if (work.cache_state == CacheState::kHot) {
    RETURN_IF_ERROR(work.launch(0));
  }
  RETURN_IF_ERROR(stream->PutStamp(0));
  for (int i = 0; i < runs; ++i) {
    const int copy = work.cache_state == CacheState::kHot ? 0 : i % copies;
    if (i > 0 && copy == 0) RETURN_IF_ERROR(Flush(work, stream));
    if (work.cache_state == CacheState::kInputHot && !work.inputs.empty()) {
      const MemorySpan& input = work.inputs[static_cast<size_t>(copy)];
      RETURN_IF_ERROR(stream->Read(input.data, input.bytes));
    }
    RETURN_IF_ERROR(stream->Record(2 * i));
    const SteadyTime launching = SteadyTime::Now();
    RETURN_IF_ERROR(work.launch(copy));
    *host_us += absl::ToDoubleMicroseconds(SteadyTime::Now() - launching) / runs;
    RETURN_IF_ERROR(stream->Record(2 * i + 1));
  }
  return stream->PutStamp(1);
}

// Nothing if the sample is to be thrown away.
absl::StatusOr<std::optional<TimedRun>> TryOnce(const TimedWork& work, bool block,
                                                TimedStream* stream) {
  const SamplePlan plan = PlanSample(work.expected, work.sample_us);
  RETURN_IF_ERROR(stream->Synchronize());
  RETURN_IF_ERROR(Flush(work, stream));
  if (block) {
    RETURN_IF_ERROR(stream->Block(plan.block_timeout));
  }
  TimedRun run;
  // Without a blocking kernel it is the flush that hides the time of launching, so that each
  // run has one.
  const absl::Status queued = Queue(work, plan.runs, block ? work.copies : 1, stream, &run.host_us);
  // Whatever happened: nothing may stay blocked.
  if (block) {
    stream->Release();
  }
  const absl::Status ended = stream->Synchronize();
  RETURN_IF_ERROR(queued);
  RETURN_IF_ERROR(ended);
  if (block && stream->GaveUp()) {
    return std::nullopt;
  }
  for (int i = 0; i < plan.runs; ++i) {
    ASSIGN_OR_RETURN(const double us, stream->ElapsedUs(2 * i, 2 * i + 1));
    run.gpu_us += us / plan.runs;
  }
  if (!std::isfinite(run.gpu_us) || run.gpu_us <= 0) return std::nullopt;
  if (block) {
    run.stamps = {stream->ReadStamp(0), stream->ReadStamp(1)};
    run.sm_clock_mhz = SmClockMhz(run.stamps[0], run.stamps[1]);
  }
  run.blocked = block;
  run.runs = plan.runs;
  return run;
}

}  // namespace

absl::StatusOr<TimedRun> TakeSample(const TimedWork& work, TimedStream* stream) {
  for (int attempt = 0; attempt <= work.block_attempts; ++attempt) {
    ASSIGN_OR_RETURN(std::optional<TimedRun> run,
                     TryOnce(work, attempt < work.block_attempts, stream));
    if (run.has_value()) {
      run->gave_up = attempt;
      return *run;
    }
  }
  return absl::InternalError("the GPU's events say that the run took no time");
}

}  // namespace convtune::worker::timing
