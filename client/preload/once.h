#pragma once

#include <stdlib.h>

#include <atomic>

namespace convtune::preload {

// A Once holds a value that is found out with the first success and kept for good. Several
// threads may find it out at a time, with the same result: so nothing is
// locked while they do, as the loader may be at work. One that calloc made does not know its value.
// Thread-safe.
template <typename T>
class Once {
 public:
  // `find(T*)` fills in a T of zeros and says whether it succeeded; null until one does,
  // and without memory.
  template <typename Find>
  const T* Get(const Find& find) {
    T* known = this->known();
    if (known != nullptr) {
      return known;
    }
    auto* found = static_cast<T*>(calloc(1, sizeof(T)));
    if (found == nullptr || !find(found) ||
        !known_.compare_exchange_strong(known, found, std::memory_order_acq_rel)) {
      free(found);
      return known;
    }
    return found;
  }
  // Null while no `find` has succeeded.
  T* known() const { return known_.load(std::memory_order_acquire); }

 private:
  std::atomic<T*> known_{nullptr};
};

}  // namespace convtune::preload
