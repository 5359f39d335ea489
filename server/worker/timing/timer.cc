#include "server/worker/timing/timer.h"

#include <cmath>

#include "proto/base/clock.h"
#include "proto/base/status_macros.h"

namespace convtune::worker::timing {

absl::StatusOr<TimedRun> Timer::Time(const TimedWork& work) {
  for (int attempt = 0; attempt <= work.block_attempts; ++attempt) {
    ASSIGN_OR_RETURN(std::optional<TimedRun> run, TryOnce(work, attempt < work.block_attempts));
    if (run.has_value()) {
      run->gave_up = attempt;
      return *run;
    }
  }
  return absl::InternalError("the GPU's events say that the run took no time");
}

absl::StatusOr<std::optional<TimedRun>> Timer::TryOnce(const TimedWork& work, bool block) {
  const SamplePlan plan = PlanSample(work.expected, work.sample_us);
  RETURN_IF_ERROR(stream_->Synchronize());
  RETURN_IF_ERROR(Flush(work));
  if (block) {
    RETURN_IF_ERROR(stream_->Block(plan.block_timeout));
  }
  TimedRun run;
  // Without a blocking kernel it is the flush that hides the time of launching, so that each
  // run has one.
  const absl::Status queued = Queue(work, plan.runs, block ? work.copies : 1, &run.host_us);
  // Whatever happened: nothing may stay blocked.
  if (block) {
    stream_->Release();
  }
  const absl::Status ended = stream_->Synchronize();
  RETURN_IF_ERROR(queued);
  RETURN_IF_ERROR(ended);
  if (block && stream_->GaveUp()) {
    return std::nullopt;
  }
  for (int i = 0; i < plan.runs; ++i) {
    ASSIGN_OR_RETURN(const double us, stream_->ElapsedUs(2 * i, 2 * i + 1));
    run.gpu_us += us / plan.runs;
  }
  if (!std::isfinite(run.gpu_us) || run.gpu_us <= 0) return std::nullopt;
  if (block) {
    run.stamps = {stream_->ReadStamp(0), stream_->ReadStamp(1)};
    run.sm_clock_mhz = SmClockMhz(run.stamps[0], run.stamps[1]);
  }
  run.blocked = block;
  run.runs = plan.runs;
  return run;
}

absl::Status Timer::Queue(const TimedWork& work, int runs, int copies, double* host_us) {
  if (work.cache_state == CacheState::kHot) {
    RETURN_IF_ERROR(work.launch(0));
  }
  RETURN_IF_ERROR(stream_->PutStamp(0));
  for (int i = 0; i < runs; ++i) {
    const int copy = work.cache_state == CacheState::kHot ? 0 : i % copies;
    if (i > 0 && copy == 0) RETURN_IF_ERROR(Flush(work));
    RETURN_IF_ERROR(Warm(work, copy));
    RETURN_IF_ERROR(stream_->Record(2 * i));
    const SteadyTime launching = SteadyTime::Now();
    RETURN_IF_ERROR(work.launch(copy));
    *host_us += absl::ToDoubleMicroseconds(SteadyTime::Now() - launching) / runs;
    RETURN_IF_ERROR(stream_->Record(2 * i + 1));
  }
  return stream_->PutStamp(1);
}

absl::Status Timer::Flush(const TimedWork& work) {
  if (work.cache_state == CacheState::kHot) return absl::OkStatus();
  const bool warms = work.cache_state == CacheState::kInputHot && !work.inputs.empty();
  return stream_->Flush(warms ? work.inputs[0].bytes : 0);
}

absl::Status Timer::Warm(const TimedWork& work, int copy) {
  if (work.cache_state != CacheState::kInputHot || work.inputs.empty()) return absl::OkStatus();
  const MemorySpan& input = work.inputs[static_cast<size_t>(copy)];
  return stream_->Read(input.data, input.bytes);
}

}  // namespace convtune::worker::timing
