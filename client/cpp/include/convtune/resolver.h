// libconvtune: gives a program the best cuDNN algorithms of a whole model in one call.
//
//   convtune::client::Resolver resolver;
//   convtune::client::Constraints constraints;
//   constraints.api = convtune::client::Api::kGraph;
//   for (const auto& result : resolver.Resolve({{"fwd,x=8x64x56x56,w=64x64x3x3,pad=1,nhwc,f16"}},
//                                              std::chrono::milliseconds(200), constraints)) {
//     if (result.found) UseEngine(result.winner.engine_index, result.winner.knobs);
//   }
//
// The header is standard C++17 and has no other library's types. No call throws,
// and no call blocks past the limit that it is given. A program that gets no answer
// runs on cuDNN's own heuristic, as it would without convtune.
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

// The cuDNN API that a candidate must be of.
enum class Api { kAny, kGraph, kLegacy };
// The way in which the caller launches the convolution.
enum class LaunchMode { kEager, kGraphCapture };
// The content of the GPU's caches before each timed run. kCold: none of the
// tensors. kInputHot: the input alone. kHot: all tensors. kDefault: the state by
// which the tuning was ranked.
enum class CacheState { kDefault = 0, kCold = 1, kInputHot = 2, kHot = 3 };
// The evidence behind an answer; higher is better. kNone: there is none.
// kHeuristic: cuDNN's heuristic names the candidate, and nothing was timed.
// kObserved: a program settled on it. kIncomplete: it was timed in a race that was
// cut short or disturbed. kMeasured: it was timed in a whole race.
enum class Evidence {
  kNone = 0,
  kHeuristic = 10,
  kObserved = 20,
  kIncomplete = 30,
  kMeasured = 40
};

// The limits of an answer; the default allows everything. Value type.
struct Constraints {
  std::optional<std::int64_t> max_workspace_bytes;  // at least 0; absent: no limit
  // The largest allowed difference from a reference of higher precision, in units
  // of the reference's largest value. Finite and at least 0; absent: no limit. A
  // candidate that was not compared with the reference breaks the limit. The
  // snapshot stores no errors, so it has no answer where there is a limit.
  std::optional<double> max_error;
  bool deterministic = false;
  bool forbid_tf32 = false;
  bool forbid_down_convert = false;
  bool forbid_winograd = false;
  bool forbid_fft = false;
  bool forbid_reduced_precision_reduction = false;
  Api api = Api::kAny;
  LaunchMode launch = LaunchMode::kEager;
  // Ranks by the times in this state where there are any. The snapshot has one time
  // for each candidate, so the state changes nothing there.
  CacheState cache_state = CacheState::kDefault;
  Evidence min_evidence = Evidence::kNone;
  // An answer of a tuning that is this old, or older, is a miss (kTooOld). A pin has no
  // age. From 1 s to 100 years; absent: any age. The snapshot stores no ages, so it has
  // pinned answers alone where there is a limit.
  std::optional<std::chrono::seconds> max_age;
};

// A query for one convolution problem. Value type.
struct Query {
  std::string problem;  // in the text form (see proto/model/README.md)
};

// An environment is the GPU model and the cuDNN for which answers hold. In
// Options::program an empty text or 0 says that a field is not known. Value type.
struct Environment {
  std::string name;                   // "nvidia-h200", "profile:nvidia-h200"; unused in Options
  std::string text;                   // the whole of it in one line; unused in Options
  bool profile = false;               // a device profile stands in for the GPU
  std::string gpu_model;              // "NVIDIA H200", or as in `text`, "nvidia-h200"
  std::string compute_capability;     // "9.0"
  int sm_count = 0;                   // SMs that a process can use
  std::string mig_profile;            // "1g.18gb"
  std::string cudnn_version;          // "9.19.0"
  std::string library_configuration;  // "full", "graph_jit_only", "unknown"
};

// A candidate is one way to run a problem. Value type.
struct Candidate {
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

// The source of a result. kSnapshot: the file that the daemon publishes for
// unmodified programs; it can be read while no daemon runs. It has up to three candidates of each
// API: under constraints the winner can be slower than the daemon's, which knows all, or missing.
enum class Source { kNone, kDaemon, kSnapshot };

// The reason for which a query has no answer. Values below 100 are those of the
// daemon's convtune.v1.MissReason. kOtherEnvironment: there are answers, but for
// another GPU or another cuDNN than the program has; engine numbers differ between
// them. kRefused: the text is not a valid problem, an argument breaks its rule, or
// the daemon refuses the caller; another call would be refused too. kUnavailable: no
// daemon answered, and no snapshot has the problem.
enum class MissReason {
  kNone = 0,
  kNotFound = 1,
  kInsufficientEvidence = 2,
  kNoCandidate = 3,
  kTuningFailed = 4,
  kNoDevice = 5,
  kOtherEnvironment = 6,
  kTooOld = 7,
  kRefused = 100,
  kUnavailable = 101
};

// The outcome of one query. Value type.
struct Result {
  std::string problem;  // the canonical text; a text that is no valid problem stays as given
  bool found = false;
  Candidate winner;                  // meaningful if `found`
  std::vector<Candidate> portfolio;  // up to three, the best first
  Evidence evidence = Evidence::kNone;
  Source source = Source::kNone;
  // The only environment for which the answer holds. Empty if neither a daemon nor a
  // snapshot answered.
  Environment environment;
  MissReason miss = MissReason::kNone;  // the reason if not `found`
  std::string job;      // with Options::enqueue_misses: "jobs/N", the job that tunes the problem
  std::string message;  // the reason in words, if not `found`
};

// The options of a Resolver. Value type.
struct Options {
  // unix:PATH or HOST:PORT. Empty: $CONVTUNE_ADDRESS, else this user's socket if
  // it exists, else the system's, /run/convtune/convtune.sock.
  std::string address;
  // Name or text of the environment to ask for, if the daemon has several.
  std::string environment;
  // The GPU and the cuDNN of the program. An answer for another GPU or another cuDNN
  // is a miss. If `find_program` is set and the GPU or the cuDNN is left out here,
  // each call looks for it: for the cuDNN that is loaded, and for the GPU of the
  // calling thread's context, else the only GPU model that the process sees. A field
  // that stays unknown is not compared; Result::environment has the whole
  // environment of an answer.
  Environment program;
  bool find_program = true;
  // Paths of PEM files. HOST:PORT needs all three.
  std::string tls_ca, tls_cert, tls_key;
  // Folder of the snapshot, which is read if no daemon answers. Empty:
  // $CONVTUNE_SNAPSHOT, else the first of these that has a readable snapshot: the one
  // below $STATE_DIRECTORY, this user's convtune/snapshot below $XDG_STATE_HOME
  // (~/.local/state), /var/lib/convtune/snapshot. The snapshot holds the choices of
  // the promoted release.
  std::string snapshot;
  bool use_snapshot = true;
  // The daemon queues a tuning of each miss (Result::job). A daemon with roles
  // requires the role `tune` for that. An answer that was not timed is then a miss,
  // unless Constraints::min_evidence says otherwise.
  bool enqueue_misses = false;
};

// A Resolver asks a daemon, or else the snapshot, for the winners of problems. It
// connects at the first call. Thread-safe but for its destruction.
class Resolver {
 public:
  explicit Resolver(Options options = Options()) noexcept;
  // Waits for a refresh that runs, at most for the refresh's limit.
  ~Resolver();
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // Returns one result for each query, in order. The number of queries has no limit.
  // Returns within `limit`, which includes the reading of the snapshot; only the time
  // to wake threads and to copy answers comes on top. If the constraints or
  // Options::program break a rule, every result has that rule as its message, and
  // nothing is asked. Retries until `limit` while no daemon answers (UNAVAILABLE),
  // and retries after no other error. If the snapshot has all answers, returns them
  // once it is read. It is read at once, or after half of `limit` if a daemon accepts
  // the call and does not answer. At the limit, takes the answers that the snapshot
  // has. A query without an answer is not `found` and has a reason and a message.
  // Returns an empty vector if memory ran out.
  std::vector<Result> Resolve(const std::vector<Query>& queries, std::chrono::milliseconds limit,
                              const Constraints& constraints = Constraints()) noexcept;

  // Starts a thread that asks every `period`, each time within `limit`, and that
  // calls `changed` with the results that differ from the last ones. A query that
  // nobody answered keeps its last result. The first call has all results that are
  // found. This function looks for the GPU, on the calling thread; the new thread
  // looks for the cuDNN each time. `changed` must not call this object. Replaces an
  // earlier refresh. Returns false if no thread can be started.
  bool StartRefresh(std::vector<Query> queries, const Constraints& constraints,
                    std::chrono::milliseconds period, std::chrono::milliseconds limit,
                    std::function<void(const std::vector<Result>&)> changed) noexcept;
  // Ends the refresh. The callback is not called again after the return.
  void StopRefresh() noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns the version of the loaded library, as "0.1.0".
const char* Version() noexcept;

}  // namespace convtune::client
