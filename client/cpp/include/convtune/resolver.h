// libconvtune: a model's best cuDNN algorithms, in one call.
//
//   convtune::client::Resolver resolver;
//   convtune::client::Constraints constraints;
//   constraints.api = convtune::client::Api::kGraph;
//   for (const auto& result : resolver.Resolve({{"fwd,x=8x64x56x56,w=64x64x3x3,pad=1,nhwc,f16"}},
//                                              std::chrono::milliseconds(200), constraints)) {
//     if (result.found) UseEngine(result.winner.engine_index, result.winner.knobs);
//   }
//
// Standard C++17, no other library's types. Nothing here throws, and nothing
// blocks past the time that it is given: a program that cannot get answers runs
// on cuDNN's own heuristic, as it would without convtune.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#define CONVTUNE_CLIENT_VERSION_MAJOR 0
#define CONVTUNE_CLIENT_VERSION_MINOR 1
#define CONVTUNE_CLIENT_VERSION_PATCH 0

namespace convtune::client {

// Which API an answer must be of.
enum class Api { kAny, kGraph, kLegacy };
// How the caller launches what it gets.
enum class Launch { kEager, kGraphCapture };
// What the caches held when the times were taken by which winners are chosen:
// nothing of the tensors; the input alone; all of them. kDefault: what the
// tuning was ranked by.
enum class CacheState { kDefault = 0, kCold = 1, kInputHot = 2, kHot = 3 };
// How good an answer is; higher is better.
enum class Evidence {
  kNone = 0,
  kHeuristic = 10,
  kObserved = 20,
  kIncomplete = 30,
  kMeasured = 40
};

// What an answer must keep to; the default allows everything. Value type.
struct Constraints {
  std::optional<std::int64_t> max_workspace_bytes;  // at least 0; absent: no limit
  // Largest error against the reference, of the result's own scale: finite and
  // at least 0; absent: no limit. What was not compared does not keep to it, so
  // the snapshot, which has no errors, answers nothing then.
  std::optional<double> max_error;
  bool deterministic = false;
  bool forbid_tf32 = false;
  bool forbid_down_convert = false;
  bool forbid_winograd = false;
  bool forbid_fft = false;
  bool forbid_reduced_precision_reduction = false;
  Api api = Api::kAny;
  Launch launch = Launch::kEager;
  // Where times in that state were taken; the snapshot has one time alone.
  CacheState cache_state = CacheState::kDefault;
  Evidence least_evidence = Evidence::kNone;
};

// A problem in the text form (see proto/model/README.md). Value type.
struct Query {
  std::string problem;
};

// A GPU model and a cuDNN that answers hold for; as Options::program, as much of
// that as is known: empty texts and 0 are not. Value type.
struct Environment {
  std::string name;                   // "nvidia-h200", "profile:nvidia-h200"; not read
  std::string text;                   // the whole of it in one line; not read
  bool profile = false;               // a device profile stands in for the GPU
  std::string gpu_model;              // "NVIDIA H200", or as in `text`, "nvidia-h200"
  std::string compute_capability;     // "9.0"
  int sm_count = 0;                   // SMs that a process can use
  std::string mig_profile;            // "1g.18gb"
  std::string cudnn_version;          // "9.19.0"
  std::string library_configuration;  // "full", "graph_jit_only", "unknown"
};

// One way to run a problem. Value type.
struct Choice {
  std::string text;                                 // "graph:eng34,k2=5"
  bool graph = true;                                // a graph-API engine config
  std::int64_t engine_index = 0;                    // if `graph`: cuDNN's global index
  std::vector<std::pair<int, std::int64_t>> knobs;  // if `graph`: cudnnBackendKnobType_t, setting
  int algorithm = 0;                                // if not: cudnnConvolution*Algo_t
  int math_type = 0;                                // if not: cudnnMathType_t
  std::int64_t workspace_bytes = 0;
  bool deterministic = false;
  std::optional<double> median_us;  // absent: it was not timed
};

// Where a result comes from. kSnapshot: the file that the daemon publishes for
// unmodified programs, which needs no daemon alive.
enum class Source { kNone, kDaemon, kSnapshot };

// Why there is no answer; the first ones are the daemon's MissReason.
// kOtherEnvironment: the program has another GPU or another cuDNN than those that
// there are answers for, whose engine numbers mean other things. kRefused: the
// text is not a valid problem, an argument breaks its rule, or the daemon does not let
// the caller ask; asking again does not help. kUnavailable: no daemon answered, and no
// snapshot has the problem.
enum class Miss {
  kNone = 0,
  kNotFound = 1,
  kInsufficientEvidence = 2,
  kNoCandidate = 3,
  kTuningFailed = 4,
  kNoDevice = 5,
  kOtherEnvironment = 6,
  kRefused = 100,
  kUnavailable = 101
};

// The outcome for one query. Value type.
struct Result {
  std::string problem;  // canonical if it was understood, else as it was given
  bool found = false;
  Choice winner;                  // meaningful if `found`
  std::vector<Choice> portfolio;  // up to three, the best first
  Evidence evidence = Evidence::kNone;
  Source source = Source::kNone;
  // The environment that was asked for the problem: an answer holds for it alone.
  // Empty if neither a daemon nor a snapshot answered.
  Environment environment;
  Miss miss = Miss::kNone;  // if not `found`: the reason
  std::string job;          // with Options::enqueue_misses: "jobs/N", which tunes it
  std::string why;          // the same in words
};

// Value type.
struct Options {
  // unix:PATH or HOST:PORT. Empty: $CONVTUNE_ADDRESS, else this user's socket if
  // it is there, else the system's, /run/convtune/convtune.sock.
  std::string address;
  // Name or text of the environment, where the daemon has several.
  std::string environment;
  // The GPU and the cuDNN that answers are for; those of others are misses. With
  // `find_program`, whichever of the two is left out is looked for at each call: the
  // cuDNN that is loaded, and the GPU of the calling thread's context, else the
  // only kind that the process sees. What is not known then is not compared:
  // Result::environment says what an answer holds for.
  Environment program;
  bool find_program = true;
  // PEM files, all three needed for HOST:PORT.
  std::string tls_ca, tls_cert, tls_key;
  // Folder of the snapshot that is read where no daemon answers. Empty:
  // $CONVTUNE_SNAPSHOT, else the first that has a snapshot to be read: below
  // $STATE_DIRECTORY, this user's convtune/snapshot below $XDG_STATE_HOME
  // (~/.local/state), /var/lib/convtune/snapshot. What it has are the choices of
  // the promoted release.
  std::string snapshot;
  bool use_snapshot = true;
  // The daemon queues a tuning of each miss (Result::job), for which it wants the
  // role `tune` where it has roles. An answer that was not timed is then a miss, unless
  // Constraints::least_evidence says otherwise.
  bool enqueue_misses = false;
};

// One connection to a daemon, made at the first call. Thread-safe but for its
// destruction.
class Resolver {
 public:
  explicit Resolver(Options options = Options()) noexcept;
  // Waits for a refresh that runs, at most as long as that may take.
  ~Resolver();
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // One result for each query, in order; any number of queries. Is back within
  // `limit`, the reading of the snapshot included, but for the time that threads
  // take to wake and answers to be copied. Where the constraints or Options::program
  // break their rule, every result says so and nothing is asked. While no daemon
  // answers (UNAVAILABLE) it tries again until then, and for nothing else; if the snapshot has
  // all answers, it is back with them at once, or, where a daemon is there and says nothing,
  // after half of `limit`. In the end it takes those that the snapshot has. What could not be
  // answered is not `found` and says why. Empty if memory ran out.
  std::vector<Result> Resolve(const std::vector<Query>& queries, std::chrono::milliseconds limit,
                              const Constraints& constraints = Constraints()) noexcept;

  // Asks again every `period` on a thread of its own, each time for at most
  // `limit`, and gives `changed` those results that differ from the last ones:
  // at first all that are found. The GPU is looked for here, on the calling
  // thread, the cuDNN each time. `changed` must not call this object. Replaces an
  // earlier refresh. Returns false if there can be no thread.
  bool StartRefresh(std::vector<Query> queries, const Constraints& constraints,
                    std::chrono::milliseconds period, std::chrono::milliseconds limit,
                    std::function<void(const std::vector<Result>&)> changed) noexcept;
  // After it returns, the callback is not called again.
  void StopRefresh() noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// "0.1.0": of the library that is loaded.
const char* Version() noexcept;

}  // namespace convtune::client
