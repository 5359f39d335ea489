// Faults are what a script tells the simulated GPU to do wrong.
//
// The file that SIMGPU_FAULTS names is read at each call. A line is
//   WHERE... = ACTION
// where each WHERE is a key alone or key:value, and all of a line's have to hold:
//   engine:22         executions of plans of this engine
//   config:eng22,k2=1 executions of this engine config, in convtune's words
//   legacy:1/0        executions of this legacy algorithm / math type
//   operation:fwd     executions of this operation: fwd, bwd_data, bwd_filter
//   launch:eager      how it runs: eager, capture (while it is captured), replay
//   find:1/0          the entry of cudnnFind* for this algorithm / math type
//   malloc            an allocation of memory of the GPU
//   malloc:67108864   one of at least so many bytes
//   kernel:NAME       one of convtune's own kernels
//   jit               compiling our kernels
//   call:NAME         a call of this function: one of CUDA's runtime, cudnnCreate, or any of
//                     cudnnGet*_v7 as cudnnGetAlgorithm_v7
//   load_code         the first launch of a plan
//   nth:3             the third time that the rest of the line holds, and no other
//   times:2           the first two times
// A line holds only where its action can be done: `fork` in a capture, what is done to calls in no
// replay.
// An unknown key or action, or an action that cannot be done there, ends the
// process with a line that names it. Each fault that fires is appended, as its
// line stands, to the file SIMGPU_FAULTS.fired.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace convtune::simgpu {

enum class Action {
  // Executions.
  kWrong,             // one element of the output is off
  kNan,               // one element of the output is NaN
  kBeyondOutput,      // a byte behind the output is written
  kBeyondWorkspace,   // a byte behind the workspace is written
  kTf32,              // products of TF32 where f32 was promised
  kSlow,              // takes 1,000 times as long
  kNotSupported,      // CUDNN_STATUS_NOT_SUPPORTED at run
  kFail,              // an error of the call
  kLeaveCaptureOpen,  // begins a capture and does not end it
  kFork,              // another stream joins the capture, and never comes back
  kSynchronize,       // waits for the stream in its launch
  kAllocate,          // allocates in its launch, as the first load of code does
  kHang,              // never returns
  kSticky,            // destroys the context when it runs on the GPU
  kLost,              // the call finds the context destroyed
  kAbort,             // ends the process
};

// Where something happens: the script's keys, and what they are here. That of malloc is the bytes
// that are asked for; jit and load_code have none.
using Site = std::map<std::string, std::string>;

// The action of the first line that holds here, which is thereby logged as
// fired; nullopt if none does. To be asked once for each thing that happens.
// Not thread-safe.
std::optional<Action> FaultAt(const Site& site);

// FaultAt a call of this function, which it hangs or ends the process in where it is told to: what
// is left is kFail and kLost.
std::optional<Action> FaultOfCall(const char* function);

// Ends the process: this is not simulated, or cannot be done.
[[noreturn]] void Refuse(std::string_view what);

// Never returns: a host call that hangs.
[[noreturn]] void Hang();

}  // namespace convtune::simgpu
