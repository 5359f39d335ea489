// Asks a GPU four questions that convtune's timing rests on, without convtune:
//   replay  does a graph's replay behind a blocked stream block the host?
//   spoilt  does an error survive a capture that was spoilt?
//   delays  how far are two delays of known length off, by events?
//   caches  do reads that share a flush find memory as cold as reads with one each?
// usage: convtune-gpu-questions QUESTION KERNELS.PTX. Prints one line. Ends with
// 0 where the answer is the one that the worker is built on, with 1 where it is
// another, with 2 where there is none.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

namespace {

constexpr uint64_t kBlockNs = 300'000'000;
constexpr uint64_t kShortNs = 50'000;
constexpr uint64_t kLongNs = 500'000;
constexpr double kDelayToleranceUs = 5;  // the worker's self-check has the same
constexpr double kWarmUpUs = 50'000;
constexpr int kDelays = 20;
constexpr size_t kBytes = size_t{64} << 20;
constexpr size_t kCopies = 4;
constexpr double kLeastColdShare = 0.9;  // of what a flush adds to the time of a read

void Must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("no answer: %s: %s\n", what, cudaGetErrorName(error));
  std::exit(2);
}

double HostUs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

// A Gpu is the first GPU with a stream, memory, events and two of the worker's kernels: the
// blocking one, and the one that reads memory.
// The process ends where a call fails, and with it all that it holds.
class Gpu {
 public:
  explicit Gpu(const char* kernels) {
    Must(cudaSetDevice(0), "set the device");
    Must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream");
    Must(cudaMalloc(&memory, kBytes), "allocate memory");
    void* host = nullptr;
    Must(cudaHostAlloc(&host, 2 * sizeof(int), cudaHostAllocMapped), "allocate the gate");
    gate_ = static_cast<volatile int*>(host);
    Must(cudaHostGetDevicePointer(&gate_on_device_, host, 0), "map the gate");
    for (cudaEvent_t& event : events_) Must(cudaEventCreate(&event), "create an event");
    std::ifstream file(kernels);
    const std::string ptx((std::istreambuf_iterator<char>(file)), {});
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
    const auto find = [driver](const char* name) {
      void* const found = driver == nullptr ? nullptr : dlsym(driver, name);
      Must(found == nullptr ? cudaErrorInsufficientDriver : cudaSuccess, name);
      return found;
    };
    const auto load = reinterpret_cast<decltype(&::cuModuleLoadDataEx)>(find("cuModuleLoadDataEx"));
    const auto get =
        reinterpret_cast<decltype(&::cuModuleGetFunction)>(find("cuModuleGetFunction"));
    launch_ = reinterpret_cast<decltype(&::cuLaunchKernel)>(find("cuLaunchKernel"));
    CUmodule module = nullptr;
    Must(static_cast<cudaError_t>(load(&module, ptx.c_str(), 0, nullptr, nullptr)), "compile");
    Must(static_cast<cudaError_t>(get(&blocking_, module, "convtune_blocking")), "find a kernel");
    Must(static_cast<cudaError_t>(get(&sweep_, module, "convtune_sweep")), "find a kernel");
    Read(memory, 16);  // so that no later launch loads code
    Block(0);
    Wait();
  }

  // Holds the stream until Release(), or for `limit_ns`.
  void Block(uint64_t limit_ns) {
    gate_[0] = 0;
    gate_[1] = 0;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    std::array<void*, 2> arguments = {&gate_on_device_, &limit_ns};
    Must(static_cast<cudaError_t>(
             launch_(blocking_, 1, 1, 1, 1, 1, 1, 0, stream, arguments.data(), nullptr)),
         "block the stream");
  }
  void Release() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    gate_[0] = 1;
  }
  bool GaveUp() const { return gate_[1] != 0; }
  void Read(void* data, uint64_t bytes) {
    uint64_t count = bytes / 16;
    std::array<void*, 3> arguments = {&data, &count, &memory};
    Must(static_cast<cudaError_t>(
             launch_(sweep_, 1024, 1, 1, 256, 1, 1, 0, stream, arguments.data(), nullptr)),
         "read memory");
  }
  cudaError_t Write() { return cudaMemsetAsync(memory, 0, kBytes, stream); }
  void Wait() { Must(cudaStreamSynchronize(stream), "wait for the stream"); }

  // The shortest of some delays, by events.
  double DelayUs(uint64_t limit_ns) {
    float shortest = INFINITY;
    for (int i = 0; i < kDelays; ++i) {
      float ms = 0;
      Must(cudaEventRecord(events_[0], stream), "record an event");
      Block(limit_ns);
      Must(cudaEventRecord(events_[1], stream), "record an event");
      Wait();
      Must(cudaEventElapsedTime(&ms, events_[0], events_[1]), "read the time");
      shortest = std::min(shortest, ms * 1000);
    }
    return shortest;
  }

  // The shortest time, by events, of reading each of kCopies pieces of `bytes` once, behind
  // a flush for each, or one for all; 0 bytes of flush: each is read before.
  double ReadsUs(char* pieces, uint64_t bytes, void* flush, uint64_t flush_bytes, bool shared) {
    double shortest = INFINITY;
    for (int i = 0; i < kDelays; ++i) {
      if (shared) Read(flush, flush_bytes);
      Block(kBlockNs);
      for (size_t k = 0; k < kCopies; ++k) {
        char* const piece = pieces + k * bytes;
        if (!shared) Read(flush_bytes > 0 ? flush : piece, flush_bytes > 0 ? flush_bytes : bytes);
        Must(cudaEventRecord(events_[2 * k], stream), "record an event");
        Read(piece, bytes);
        Must(cudaEventRecord(events_[2 * k + 1], stream), "record an event");
      }
      Release();
      Wait();
      double sum = 0;
      for (size_t k = 0; k < kCopies; ++k) {
        float ms = 0;
        Must(cudaEventElapsedTime(&ms, events_[2 * k], events_[2 * k + 1]), "read the time");
        sum += ms * 1000;
      }
      shortest = std::min(shortest, sum);
    }
    return shortest / kCopies;
  }

  cudaStream_t stream = nullptr;
  void* memory = nullptr;

 private:
  volatile int* gate_ = nullptr;
  void* gate_on_device_ = nullptr;
  std::array<cudaEvent_t, 2 * kCopies> events_ = {};
  decltype(&::cuLaunchKernel) launch_ = nullptr;
  CUfunction blocking_ = nullptr;
  CUfunction sweep_ = nullptr;
};

int Replay(Gpu* gpu) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  Must(cudaStreamBeginCapture(gpu->stream, cudaStreamCaptureModeThreadLocal), "begin a capture");
  Must(gpu->Write(), "write memory");
  Must(cudaStreamEndCapture(gpu->stream, &graph), "end a capture");
  Must(cudaGraphInstantiateWithFlags(&exec, graph, 0), "instantiate a graph");
  Must(cudaGraphUpload(exec, gpu->stream), "upload a graph");
  gpu->Wait();
  std::array<double, 4> at = {};
  gpu->Block(kBlockNs);
  for (size_t i = 0; i < at.size(); ++i) {
    at[i] = HostUs();
    if (i + 1 < at.size()) Must(cudaGraphLaunch(exec, gpu->stream), "replay a graph");
  }
  gpu->Release();
  gpu->Wait();
  const bool blocks = gpu->GaveUp() || at.back() - at.front() > static_cast<double>(kBlockNs) / 2e3;
  std::printf(
      "a replay behind a blocked stream %s the host: three of one graph took %.0f, %.0f and %.0f "
      "us\n",
      blocks ? "BLOCKS" : "does not block", at[1] - at[0], at[2] - at[1], at[3] - at[2]);
  return blocks ? 1 : 0;
}

int Spoilt(Gpu* gpu) {
  cudaGraph_t graph = nullptr;
  Must(cudaStreamBeginCapture(gpu->stream, cudaStreamCaptureModeThreadLocal), "begin a capture");
  Must(gpu->Write(), "write memory");
  const cudaError_t waited = cudaStreamSynchronize(gpu->stream);  // a capture allows no such call
  const cudaError_t ended = cudaStreamEndCapture(gpu->stream, &graph);
  const cudaError_t last = cudaGetLastError();
  const cudaError_t cleared = cudaGetLastError();
  const cudaError_t wrote = gpu->Write();
  const cudaError_t done = cudaStreamSynchronize(gpu->stream);
  const bool survives = cleared != cudaSuccess || wrote != cudaSuccess || done != cudaSuccess ||
                        waited == cudaSuccess;
  std::printf(
      "an error %s a spoilt capture: waiting in it %s, ending it %s, last error %s, then %s; a "
      "write %s, its end %s\n",
      survives ? "SURVIVES" : "does not survive", cudaGetErrorName(waited), cudaGetErrorName(ended),
      cudaGetErrorName(last), cudaGetErrorName(cleared), cudaGetErrorName(wrote),
      cudaGetErrorName(done));
  return survives ? 1 : 0;
}

int Delays(Gpu* gpu) {
  const double cold = gpu->DelayUs(kLongNs) - gpu->DelayUs(kShortNs);
  for (const double end = HostUs() + kWarmUpUs; HostUs() < end; gpu->Wait()) {
    Must(gpu->Write(), "write memory");
  }
  const double shorter = gpu->DelayUs(kShortNs);
  const double longer = gpu->DelayUs(kLongNs);
  const double expected = static_cast<double>(kLongNs - kShortNs) / 1e3;
  const bool off = !(std::abs(longer - shorter - expected) <= kDelayToleranceUs &&
                     shorter >= static_cast<double>(kShortNs) / 1e3 - kDelayToleranceUs);
  std::printf(
      "delays of 50 and 500 us are %s: %.1f and %.1f us by events, %+.1f us apart beyond 450; "
      "%+.1f us before 50 ms of work\n",
      off ? "OFF" : "right", shorter, longer, longer - shorter - expected, cold - expected);
  return off ? 1 : 0;
}

int Caches(Gpu* gpu) {
  int l2_bytes = 0;
  Must(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, 0), "ask for the L2 cache");
  const uint64_t piece = static_cast<uint64_t>(l2_bytes) / 3 / 256 * 256;  // as the self-check
  const uint64_t flush_bytes = 2 * static_cast<uint64_t>(l2_bytes);
  void* flush = nullptr;
  void* pieces = nullptr;
  Must(cudaMalloc(&flush, flush_bytes), "allocate memory");
  Must(cudaMalloc(&pieces, kCopies * piece), "allocate memory");
  auto* const first = static_cast<char*>(pieces);
  const double hot = gpu->ReadsUs(first, piece, flush, 0, false);
  const double own = gpu->ReadsUs(first, piece, flush, flush_bytes, false);
  const double shared = gpu->ReadsUs(first, piece, flush, flush_bytes, true);
  const bool warmer = !(shared - hot >= kLeastColdShare * (own - hot) && own > hot);
  std::printf(
      "reads that share a flush find memory %s reads with one each: %.1f and %.1f us, %.1f us "
      "where "
      "it was just read\n",
      warmer ? "WARMER than" : "as cold as", shared, own, hot);
  return warmer ? 1 : 0;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string question = count == 3 ? arguments[1] : "";
  constexpr std::pair<const char*, int (*)(Gpu*)> kQuestions[] = {
      {"replay", Replay}, {"spoilt", Spoilt}, {"delays", Delays}, {"caches", Caches}};
  for (const auto& [name, ask] : kQuestions) {
    if (question != name) continue;
    Gpu gpu(arguments[2]);
    return ask(&gpu);
  }
  std::fprintf(stderr, "usage: convtune-gpu-questions replay|spoilt|delays|caches KERNELS.PTX\n");
  return 2;
}
