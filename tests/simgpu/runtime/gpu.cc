#include "tests/simgpu/runtime/gpu.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/worker/device/device_profile.h"
#include "tests/simgpu/faults/faults.h"

namespace convtune::simgpu {
namespace {

// Launches that a stream takes before the next one waits for room. CUDA promises
// none; drivers take about a thousand.
constexpr size_t kQueueDepth = 1024;
// Between two kernels of a stream.
constexpr int64_t kGapNs = 1000;
// The host's part of a launch, by the GPU's clock: however long it takes this
// machine, so that the same seed gives the same samples.
constexpr int64_t kHostCallNs = 2000;
// Of bandwidths: an H200 that was measured by others (RRZE-HPC/gpu-benches) reads
// 9.8 TB/s where data fits its L2 cache, and 3.9 of 4.9 TB/s where it does not.
constexpr double kL2BytesPerClockAndSm = 37.5;
constexpr double kMemoryShare = 0.8;

const char* Setting(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

GpuSettings ReadSettings() {
  GpuSettings settings;
  if (*Setting("SIMGPU_SEED") != '\0')
    settings.seed = std::strtoull(Setting("SIMGPU_SEED"), nullptr, 10);
  settings.runs_early = *Setting("SIMGPU_RUNS_EARLY") != '\0';
  settings.relaunch_blocks = *Setting("SIMGPU_RELAUNCH_BLOCKS") != '\0';
  settings.no_sm_0 = *Setting("SIMGPU_NO_SM_0") != '\0';
  if (*Setting("SIMGPU_TIMER_STEP_NS") != '\0') {
    settings.timer_step_ns = std::max(1, std::atoi(Setting("SIMGPU_TIMER_STEP_NS")));
  }
  return settings;
}

// The profile's name without its maker: "NVIDIA H200" is "SIMULATED H200".
std::string SimulatedName(std::string name) {
  const std::string maker = "NVIDIA ";
  if (name.compare(0, maker.size(), maker) == 0) name.erase(0, maker.size());
  return "SIMULATED " + name;
}

GpuProfile ReadProfile() {
  const char* path = Setting("SIMGPU_PROFILE");
  if (*path == '\0') path = CONVTUNE_SIMGPU_PROFILE;
  const absl::StatusOr<worker::device::DeviceProfile> loaded =
      worker::device::DeviceProfile::Load(path);
  if (!loaded.ok()) Refuse(std::string(loaded.status().message()));
  GpuProfile profile;
  profile.name = SimulatedName(loaded->environment.gpu_model);
  profile.device_properties = loaded->properties_json;
  profile.cc_major = loaded->environment.cc_major;
  profile.cc_minor = loaded->environment.cc_minor;
  profile.sm_count = loaded->environment.sm_count;
  profile.memory_bytes = loaded->memory_bytes;
  const nlohmann::json properties = nlohmann::json::parse(loaded->properties_json);
  const auto number = [&](const char* key) {
    if (!properties.contains(key))
      Refuse(std::string(path) + ": properties." + key + " is missing");
    return properties[key].get<int64_t>();
  };
  profile.l2_bytes = number("l2CacheSize");
  profile.sm_clock_mhz = static_cast<double>(number("smClockRateKHz")) / 1000;
  profile.memory_clock_khz = static_cast<int>(number("memClockRateKHz"));
  profile.memory_bus_bits = static_cast<int>(number("memoryBusWidth"));
  profile.driver_version = static_cast<int>(number("driverVer"));
  // Two transfers a clock.
  profile.memory_bytes_per_second =
      kMemoryShare * 2.0 * profile.memory_clock_khz * 1000 * profile.memory_bus_bits / 8;
  profile.l2_bytes_per_second =
      profile.sm_clock_mhz * 1e6 * profile.sm_count * kL2BytesPerClockAndSm;
  return profile;
}

}  // namespace

uint64_t HashOf(std::string_view text, uint64_t seed, uint64_t count) {
  uint64_t hash = 14695981039346656037ULL ^ seed;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  hash += count * 0x9E3779B97F4A7C15ULL;
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9ULL;
  hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBULL;
  return hash ^ (hash >> 31);
}

Gpu& Gpu::Get() {
  // Never destroyed: the worker's statics may call CUDA as the process ends.
  static Gpu& gpu = *new Gpu(ReadProfile(), ReadSettings());
  gpu.CheckThread();
  return gpu;
}

Gpu::Gpu(GpuProfile profile, GpuSettings settings)
    : profile_(std::move(profile)),
      settings_(settings),
      memory_(profile_.memory_bytes),
      l2_(profile_.l2_bytes),
      thread_(std::this_thread::get_id()) {
  streams_[nullptr] = {};
  put_ns_ = NowNs();
  clock_ = {put_ns_, 0, profile_.sm_clock_mhz};
}

void Gpu::CheckThread() const {
  if (std::this_thread::get_id() != thread_) Refuse("CUDA is called from a second thread");
}

int64_t Gpu::HostNs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

int64_t Gpu::AlignUp(int64_t ns) { return (ns + kAlignmentNs - 1) / kAlignmentNs * kAlignmentNs; }

int64_t Gpu::NowNs() const { return AlignUp(std::max(HostNs() + skipped_ns_, put_ns_)); }

uint64_t Gpu::TimerAt(int64_t ns) const {
  return static_cast<uint64_t>(ns / settings_.timer_step_ns * settings_.timer_step_ns);
}

uint64_t Gpu::CyclesAt(int64_t ns) const {
  return clock_.cycles +
         static_cast<uint64_t>(static_cast<double>(ns - clock_.since_ns) * clock_.mhz / 1000);
}

double Gpu::SmClockMhz() const { return clock_.mhz; }

void Gpu::ReadClock(int64_t ns) {
  const char* const folder = std::getenv("CONVTUNE_FAKE_CARD");
  if (folder == nullptr || ns <= clock_.since_ns) return;
  double factor = 1;
  std::ifstream(std::string(folder) + "/clock") >> factor;
  const double mhz = profile_.sm_clock_mhz * (factor > 0 ? factor : 1);
  if (mhz != clock_.mhz) clock_ = {ns, CyclesAt(ns), mhz};
}

double Gpu::Noise(std::string_view key, double relative_spread) {
  const auto found = noise_calls_.emplace(key, 0).first;
  const uint64_t hash = HashOf(key, settings_.seed, found->second++);
  // The sum of four uniform numbers is nearly normal, and has no far ends.
  double sum = 0;
  for (int i = 0; i < 4; ++i)
    sum += static_cast<double>((hash >> (16 * i)) & 0xFFFF) / 65535.0 - 0.5;
  return 1 + sum * std::sqrt(3.0) * relative_spread;
}

cudaError_t Gpu::Put(cudaStream_t stream, WorkPtr work) {
  if (sticky_ != cudaSuccess) return sticky_;
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return cudaErrorInvalidResourceHandle;
  Stream& to = found->second;
  if (to.capture != nullptr) {
    if (to.capture->invalid) return cudaErrorStreamCaptureInvalidated;
    to.capture->nodes.push_back(std::move(work));
    return cudaSuccess;
  }
  return Queue(&to, {std::move(work), NextPutNs(), false, nullptr});
}

int64_t Gpu::NextPutNs() { return put_ns_ += kHostCallNs; }

cudaError_t Gpu::Queue(Stream* stream, Queued queued) {
  if (stream->queue.size() >= kQueueDepth) {
    Drain(stream);
    SkipTo(stream->end_ns);
  }
  stream->queue.push_back(std::move(queued));
  const bool held = std::any_of(stream->queue.begin(), stream->queue.end(),
                                [](const Queued& each) { return each.work->waits_for_host; });
  if (settings_.runs_early && !held) Drain(stream);
  return sticky_;
}

void Gpu::Drain(Stream* stream) {
  while (!stream->queue.empty()) {
    const Queued queued = std::move(stream->queue.front());
    stream->queue.pop_front();
    if (sticky_ != cudaSuccess) continue;
    const int64_t start = std::max(stream->end_ns + kGapNs, queued.put_ns);
    ReadClock(start);
    const WorkEnd end = queued.work->run({start, queued.replay});
    stream->end_ns = std::max(start, end.ns);
    // A blocking kernel is counted until the last of the calls behind it, each of which takes
    // kHostCallNs, however long this machine takes.
    const int64_t last_put_ns = stream->queue.empty() ? start : stream->queue.back().put_ns;
    const int64_t busy_until = end.by_host ? std::min(stream->end_ns, last_put_ns) : stream->end_ns;
    busy_ns_ += std::max<int64_t>(0, busy_until - start);
    if (end.error != cudaSuccess) Lose(end.error);
  }
}

void Gpu::SkipTo(int64_t ns) {
  skipped_ns_ += std::max<int64_t>(0, std::max(ns, put_ns_) - (HostNs() + skipped_ns_));
  put_ns_ = NowNs();
  NoteUsage();
}

void Gpu::NoteUsage() {
  static const char* const path = std::getenv("SIMGPU_USAGE");
  if (path == nullptr || *path == '\0' || busy_ns_ == noted_busy_ns_) return;
  noted_busy_ns_ = busy_ns_;
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  std::ofstream(path, std::ios::app)
      << int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000 << ' ' << busy_ns_ << '\n';
}

cudaError_t Gpu::WaitForIdle() {
  if (sticky_ != cudaSuccess) return sticky_;
  if (const cudaError_t error = Forbidden(); error != cudaSuccess) return error;
  for (auto& [id, stream] : streams_) {
    Drain(&stream);
    SkipTo(stream.end_ns);
  }
  return sticky_;
}

cudaError_t Gpu::Wait(cudaStream_t stream) {
  if (sticky_ != cudaSuccess) return sticky_;
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return cudaErrorInvalidResourceHandle;
  if (found->second.capture != nullptr) {
    found->second.capture->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  if (const cudaError_t error = Forbidden(); error != cudaSuccess) return error;
  Drain(&found->second);
  SkipTo(found->second.end_ns);
  return sticky_;
}

cudaStream_t Gpu::CreateStream() {
  const auto stream = reinterpret_cast<cudaStream_t>(next_id_++ << 4);
  streams_[stream] = {};
  MakeContext();
  return stream;
}

cudaError_t Gpu::DestroyStream(cudaStream_t stream) {
  const auto found = streams_.find(stream);
  if (stream == nullptr || found == streams_.end()) return cudaErrorInvalidResourceHandle;
  // Under a name that nobody knows.
  auto node = streams_.extract(found);
  node.key() = reinterpret_cast<cudaStream_t>(next_id_++ << 4);
  node.mapped().capture = nullptr;
  streams_.insert(std::move(node));
  return cudaSuccess;
}

cudaError_t Gpu::BeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (sticky_ != cudaSuccess) return sticky_;
  if (stream == nullptr) return cudaErrorStreamCaptureUnsupported;
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return cudaErrorInvalidResourceHandle;
  if (found->second.capture != nullptr) return cudaErrorIllegalState;
  found->second.capture = std::make_unique<Capture>();
  found->second.capture->mode = mode;
  return cudaSuccess;
}

cudaError_t Gpu::EndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (sticky_ != cudaSuccess) return sticky_;
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return cudaErrorInvalidResourceHandle;
  const std::unique_ptr<Capture> capture = std::move(found->second.capture);
  if (capture == nullptr) return cudaErrorIllegalState;
  if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (capture->unjoined) return cudaErrorStreamCaptureUnjoined;
  *graph = reinterpret_cast<cudaGraph_t>(next_id_++ << 4);
  graphs_[*graph] = std::move(capture->nodes);
  return cudaSuccess;
}

bool Gpu::IsCapturing(cudaStream_t stream) const {
  const auto found = streams_.find(stream);
  return found != streams_.end() && found->second.capture != nullptr;
}

cudaError_t Gpu::Forbidden(bool even_if_relaxed) {
  cudaError_t error = cudaSuccess;
  for (auto& [id, stream] : streams_) {
    if (stream.capture == nullptr) continue;
    if (stream.capture->mode == cudaStreamCaptureModeRelaxed && !even_if_relaxed) continue;
    stream.capture->invalid = true;
    error = cudaErrorStreamCaptureUnsupported;
  }
  return error;
}

void Gpu::ForkCapture(cudaStream_t stream) {
  const auto found = streams_.find(stream);
  if (found != streams_.end() && found->second.capture != nullptr)
    found->second.capture->unjoined = true;
}

cudaError_t Gpu::Instantiate(cudaGraph_t graph, cudaGraphExec_t* exec) {
  *exec = nullptr;
  // It allocates, as the driver does for a graph's nodes.
  if (const cudaError_t error = WaitForIdle(); error != cudaSuccess) return error;
  const auto found = graphs_.find(graph);
  if (found == graphs_.end()) return cudaErrorInvalidValue;
  *exec = reinterpret_cast<cudaGraphExec_t>(next_id_++ << 4);
  execs_[*exec] = {found->second, false};
  return cudaSuccess;
}

cudaError_t Gpu::Upload(cudaGraphExec_t exec, cudaStream_t stream) {
  if (sticky_ != cudaSuccess) return sticky_;
  const auto found = execs_.find(exec);
  if (found == execs_.end()) return cudaErrorInvalidValue;
  if (!IsStream(stream)) return cudaErrorInvalidResourceHandle;
  // It may allocate.
  if (const cudaError_t error = WaitForIdle(); error != cudaSuccess) return error;
  found->second.uploaded = true;
  return cudaSuccess;
}

cudaError_t Gpu::LaunchGraph(cudaGraphExec_t exec, cudaStream_t stream) {
  if (sticky_ != cudaSuccess) return sticky_;
  const auto found = execs_.find(exec);
  const auto on = streams_.find(stream);
  if (found == execs_.end()) return cudaErrorInvalidValue;
  if (on == streams_.end()) return cudaErrorInvalidResourceHandle;
  Stream& to = on->second;
  if (to.capture != nullptr) {
    // A child graph, which nothing here puts into a graph.
    to.capture->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  // The first launch uploads it, where nobody did before.
  if (!std::exchange(found->second.uploaded, true)) {
    if (const cudaError_t error = WaitForIdle(); error != cudaSuccess) return error;
  }
  const auto pending_on = [exec](const Stream& queued_on) {
    return std::any_of(queued_on.queue.begin(), queued_on.queue.end(),
                       [exec](const Queued& queued) { return queued.exec == exec; });
  };
  for (const auto& [id, other] : streams_) {
    if (&other != &to && pending_on(other)) {
      Refuse("a graph is launched that is pending on another stream: this order is not simulated");
    }
  }
  if (pending_on(to) && settings_.relaunch_blocks) {
    if (const cudaError_t error = Wait(stream); error != cudaSuccess) return error;
  }
  for (const WorkPtr& work : found->second.nodes) {
    if (const cudaError_t error = Queue(&to, {work, NextPutNs(), true, exec}); error != cudaSuccess)
      return error;
  }
  return cudaSuccess;
}

cudaError_t Gpu::DestroyGraph(cudaGraph_t graph) {
  return graphs_.erase(graph) > 0 ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t Gpu::DestroyExec(cudaGraphExec_t exec) {
  return execs_.erase(exec) > 0 ? cudaSuccess : cudaErrorInvalidValue;
}

void Gpu::Lose(cudaError_t error) {
  if (sticky_ == cudaSuccess) sticky_ = error;
}

}  // namespace convtune::simgpu
