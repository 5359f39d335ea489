// A Gpu is a GPU made of software: memory, an L2 cache, streams in virtual time,
// captures and errors, as the CUDA Runtime API's manual has them.
//
// Virtual time. The GPU's clock (%globaltimer) is the host's monotonic clock plus
// what was skipped so far: where a host call waits for the GPU, the clock moves
// on to the end of what is waited for, and the host does not sleep. Nothing runs
// before some call waits for it, so that memory which must not be touched until
// then is read as late as the manual allows. With GpuSettings::runs_early it runs as
// soon as it is put on a stream, which the manual allows as well. A blocking kernel that the host
// waits for, without having released it, therefore runs to its limit.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/simgpu/runtime/l2_cache.h"
#include "tests/simgpu/runtime/memory.h"
#include "tests/simgpu/runtime/work.h"

namespace convtune::simgpu {

// What the simulated GPU is like: a device profile of deploy/profiles, under a
// name of its own.
struct GpuProfile {
  std::string name;               // "SIMULATED H200"
  std::string device_properties;  // cuDNN's JSON
  int cc_major = 0;
  int cc_minor = 0;
  int sm_count = 0;
  int64_t l2_bytes = 0;
  int64_t memory_bytes = 0;
  double sm_clock_mhz = 0;  // at boost
  double memory_bytes_per_second = 0;
  double l2_bytes_per_second = 0;
  int memory_clock_khz = 0;
  int memory_bus_bits = 0;
  int driver_version = 0;
};

// SplitMix64's finaliser over FNV-1a: the same on each machine.
uint64_t HashOf(std::string_view text, uint64_t seed, uint64_t count = 0);

// Settings of a run, out of the environment: see tests/simgpu/README.md.
struct GpuSettings {
  uint64_t seed = 1;
  bool runs_early = false;       // work begins as soon as it is put on its stream
  bool relaunch_blocks = false;  // launching a graph that is pending waits for it
  int timer_step_ns = 32;        // of %globaltimer
  bool no_sm_0 = false;          // no block runs on SM 0
};

// Not thread-safe: the worker calls CUDA and cuDNN from one thread, and a call
// from another ends the process with a line that says so.
class Gpu {
 public:
  // The process's only one. Made at the first call; a profile that cannot be
  // read ends the process.
  static Gpu& Get();

  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const GpuProfile& profile() const { return profile_; }
  const GpuSettings& settings() const { return settings_; }
  DeviceMemory& memory() { return memory_; }
  L2Cache& l2() { return l2_; }

  // What the host does falls on multiples of this by the GPU's clock, so that what
  // follows, steps of timers included, is the same in each run. A multiple of the
  // timer's steps, and of whole cycles of clocks in MHz.
  static constexpr int64_t kAlignmentNs = 32'000;
  static int64_t AlignUp(int64_t ns);
  // The GPU's clock in ns, as of the host's now.
  int64_t NowNs() const;
  // %globaltimer at a time of the GPU's clock: it moves in steps.
  uint64_t TimerAt(int64_t ns) const;
  // %clock64 at a time of the GPU's clock.
  uint64_t CyclesAt(int64_t ns) const;
  // As of the last work that began. The file `clock` in the folder that
  // CONVTUNE_FAKE_CARD names holds a factor for it, as of a GPU that throttles.
  double SmClockMhz() const;
  // A factor around 1 that a kernel's time is multiplied with: the same for the
  // same seed, key and number of calls with this key.
  double Noise(std::string_view key, double relative_spread);

  // Puts work on a stream, or into its capture: as a kernel launch. May wait,
  // where the queue is full.
  cudaError_t Put(cudaStream_t stream, WorkPtr work);
  // Waits for all that is on the GPU, as calls do that allocate, free or load
  // code. In a capture of this thread that forbids it: an error, and the
  // capture is invalid from then on.
  cudaError_t WaitForIdle();
  // cudaStreamSynchronize; an error while the stream is captured, and in a capture
  // of this thread that forbids it.
  cudaError_t Wait(cudaStream_t stream);

  // Some function of the runtime has made the context that the driver's need.
  bool has_context() const { return has_context_; }
  void MakeContext() { has_context_ = true; }

  // Streams. Null is the legacy default stream.
  cudaStream_t CreateStream();
  // What is on it still runs, when somebody waits for the GPU.
  cudaError_t DestroyStream(cudaStream_t stream);
  bool IsStream(cudaStream_t stream) const { return streams_.count(stream) > 0; }

  // Captures.
  cudaError_t BeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
  cudaError_t EndCapture(cudaStream_t stream, cudaGraph_t* graph);
  bool IsCapturing(cudaStream_t stream) const;
  // What a call that no capture of this thread allows gives: cudaSuccess if
  // there is none, else an error, and the capture is invalid from then on.
  // `even_if_relaxed`: not even a relaxed capture allows it.
  cudaError_t Forbidden(bool even_if_relaxed = false);
  // Another stream joins the capture and never comes back.
  void ForkCapture(cudaStream_t stream);
  cudaError_t Instantiate(cudaGraph_t graph, cudaGraphExec_t* exec);
  cudaError_t Upload(cudaGraphExec_t exec, cudaStream_t stream);
  cudaError_t LaunchGraph(cudaGraphExec_t exec, cudaStream_t stream);
  cudaError_t DestroyGraph(cudaGraph_t graph);
  cudaError_t DestroyExec(cudaGraphExec_t exec);

  // The error that destroyed the context; every call gives it from then on.
  cudaError_t sticky() const { return sticky_; }
  void Lose(cudaError_t error);

 private:
  struct Queued {
    WorkPtr work;
    int64_t put_ns = 0;
    bool replay = false;
    cudaGraphExec_t exec = nullptr;
  };
  struct Capture {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    bool invalid = false;
    bool unjoined = false;
    std::vector<WorkPtr> nodes;
  };
  struct Exec {
    std::vector<WorkPtr> nodes;
    bool uploaded = false;
  };
  struct Clock {
    int64_t since_ns = 0;
    uint64_t cycles = 0;  // at since_ns
    double mhz = 0;
  };
  struct Stream {
    std::deque<Queued> queue;
    int64_t end_ns = 0;  // when all that ran ended
    std::unique_ptr<Capture> capture;
  };

  Gpu(GpuProfile profile, GpuSettings settings);

  void CheckThread() const;
  static int64_t HostNs();
  void ReadClock(int64_t ns);
  // When the host puts the next piece of work on a stream: so many calls after it
  // last waited, however long they took this machine.
  int64_t NextPutNs();
  cudaError_t Queue(Stream* stream, Queued queued);
  // Runs all that is on the stream; the host does not wait.
  void Drain(Stream* stream);
  // The host waits until then.
  void SkipTo(int64_t ns);
  // A line into the file that SIMGPU_USAGE names, where something ran since.
  void NoteUsage();

  const GpuProfile profile_;
  const GpuSettings settings_;
  DeviceMemory memory_;
  L2Cache l2_;
  std::map<cudaStream_t, Stream> streams_;
  std::map<cudaGraph_t, std::vector<WorkPtr>> graphs_;
  std::map<cudaGraphExec_t, Exec> execs_;
  std::map<std::string, uint64_t, std::less<>> noise_calls_;
  const std::thread::id thread_;
  Clock clock_;
  uintptr_t next_id_ = 1;
  int64_t skipped_ns_ = 0;
  int64_t put_ns_ = 0;
  int64_t busy_ns_ = 0;
  int64_t noted_busy_ns_ = 0;
  bool has_context_ = false;
  cudaError_t sticky_ = cudaSuccess;
};

}  // namespace convtune::simgpu
