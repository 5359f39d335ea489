// The functions of the cuDNN that the program itself would have called.
#pragma once

#include <cudnn.h>

#include <atomic>
#include <type_traits>

namespace convtune::preload {

inline constexpr char kMainLibrary[] = "libcudnn.so.9";
inline constexpr char kGraphLibrary[] = "libcudnn_graph.so.9";

// Gives the function `name` of the library `first`, or of another of cuDNN's libraries where the
// program did not load `first`; null if no loaded library has that function. RTLD_NEXT is no use: a
// library that was loaded RTLD_LOCAL is not in its scope. Thread-safe.
void* RealSymbol(const char* name, const char* first);

// A Function is one of cuDNN's, or of another library, looked up until it is found. Constant:
// nothing runs when the library is loaded. Thread-safe.
template <typename>
class Function;
template <typename Result, typename... Args>
class Function<Result (*)(Args...)> {
 public:
  constexpr Function(const char* name, const char* first) : name_(name), first_(first) {}

  // Calls the function. Where no library has it: CUDNN_STATUS_NOT_INITIALIZED, and 0 of a function
  // that gives a version.
  Result operator()(Args... args) const {
    const Pointer real = Get();
    if (real != nullptr) {
      return real(args...);
    }
    return static_cast<Result>(std::is_same_v<Result, size_t> ? 0 : CUDNN_STATUS_NOT_INITIALIZED);
  }
  // Null while no loaded library has the function.
  auto Get() const {
    Pointer real = real_.load(std::memory_order_acquire);
    if (real == nullptr) {
      real = reinterpret_cast<Pointer>(RealSymbol(name_, first_));
      real_.store(real, std::memory_order_release);
    }
    return real;
  }

 private:
  using Pointer = Result (*)(Args...);

  const char* const name_;
  const char* const first_;
  mutable std::atomic<Pointer> real_{nullptr};
};

#define CONVTUNE_REAL(member, name) \
  Function<decltype(&name)> member { #name, first }

struct RealCudnn {
  const char* first;  // the library that is looked in first

  CONVTUNE_REAL(GetVersion, cudnnGetVersion);
  CONVTUNE_REAL(GetStream, cudnnGetStream);
  CONVTUNE_REAL(Create, cudnnBackendCreateDescriptor);
  CONVTUNE_REAL(Destroy, cudnnBackendDestroyDescriptor);
  CONVTUNE_REAL(SetAttribute, cudnnBackendSetAttribute);
  CONVTUNE_REAL(GetAttribute, cudnnBackendGetAttribute);
  CONVTUNE_REAL(Finalize, cudnnBackendFinalize);
  CONVTUNE_REAL(Execute, cudnnBackendExecute);
  // What legacy descriptors say, and what cuDNN says of a legacy algorithm.
  CONVTUNE_REAL(Tensor, cudnnGetTensorNdDescriptor);
  CONVTUNE_REAL(Filter, cudnnGetFilterNdDescriptor);
  CONVTUNE_REAL(Convolution, cudnnGetConvolutionNdDescriptor);
  CONVTUNE_REAL(Groups, cudnnGetConvolutionGroupCount);
  CONVTUNE_REAL(Math, cudnnGetConvolutionMathType);
  CONVTUNE_REAL(FwdWorkspace, cudnnGetConvolutionForwardWorkspaceSize);
  CONVTUNE_REAL(BwdDataWorkspace, cudnnGetConvolutionBackwardDataWorkspaceSize);
  CONVTUNE_REAL(BwdFilterWorkspace, cudnnGetConvolutionBackwardFilterWorkspaceSize);
  CONVTUNE_REAL(Fwd, cudnnGetConvolutionForwardAlgorithm_v7);
  CONVTUNE_REAL(BwdData, cudnnGetConvolutionBackwardDataAlgorithm_v7);
  CONVTUNE_REAL(BwdFilter, cudnnGetConvolutionBackwardFilterAlgorithm_v7);
};

#undef CONVTUNE_REAL

extern const RealCudnn real_cudnn;
// What cuDNN's own libraries call.
extern const RealCudnn real_graph;

// The dlsym that a program would have called: the next preloaded library's, if one has its own,
// else the C library's. A call of `dlsym` by its name would find the hook. Thread-safe.
using Dlsym = void* (*)(void* handle, const char* name);
Dlsym RealDlsym();

// True if `function` is the one that the hook of this name goes on to. False for a function of the
// same name of another cuDNN, such as a libcudnn.so.8 in the same process. Thread-safe.
bool IsReal(const char* name, const void* function);

// True if the address lies in one of cuDNN's own libraries, whose calls are
// never redirected. Thread-safe.
bool IsCudnn(const void* return_address);
// The same, and remembers nothing: for libraries that may be unloaded.
bool IsCudnnNow(const void* return_address);

// True for cuDNN's own libraries, those of versions to come included; a build
// of cudnn-frontend is a program.
bool IsCudnnLibrary(const char* path);

}  // namespace convtune::preload
