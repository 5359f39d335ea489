// An Owned destroys a handle of cuDNN or CUDA with the library's own function.
#pragma once

#include <memory>
#include <type_traits>

namespace convtune::worker::cudnn {

template <auto Destroy>
struct DestroyWith {
  template <typename T>
  void operator()(T* raw) const {
    Destroy(raw);
  }
};

// A unique_ptr to what `Handle` points to, as Owned<cudnnHandle_t, cudnnDestroy>. Not
// thread-safe. What destroying reports is dropped.
template <typename Handle, auto Destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, DestroyWith<Destroy>>;

}  // namespace convtune::worker::cudnn
