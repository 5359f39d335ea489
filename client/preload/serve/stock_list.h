// A StockList has the first configs of cuDNN's own list.
#pragma once

#include <cudnn.h>

#include "client/preload/process/real_cudnn.h"
#include "client/preload/shadow/engine_config.h"

namespace convtune::preload::serve {

// Of a finalised heuristics descriptor, at most `most` configs. Owns them.
class StockList {
 public:
  static constexpr int kMost = shadow::kMaxPlaces;

  StockList(cudnnBackendDescriptor_t heuristics, int most) {
    while (made_ < most && process::Real().Create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                                                  &configs_[made_]) == CUDNN_STATUS_SUCCESS) {
      ++made_;
    }
    int64_t got = 0;
    if (made_ > 0 && process::Real().GetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, made_, &got,
                                                  configs_) == CUDNN_STATUS_SUCCESS) {
      count_ = got < made_ ? static_cast<int>(got) : made_;
    }
  }
  ~StockList() {
    while (made_ > 0) {
      process::Real().Destroy(configs_[--made_]);
    }
  }
  StockList(const StockList&) = delete;
  StockList& operator=(const StockList&) = delete;

  int count() const { return count_; }
  cudnnBackendDescriptor_t operator[](int i) const { return configs_[i]; }

 private:
  cudnnBackendDescriptor_t configs_[kMost];
  int made_ = 0;
  int count_ = 0;
};

}  // namespace convtune::preload::serve
