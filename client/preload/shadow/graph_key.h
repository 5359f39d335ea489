#pragma once

#include "client/preload/shadow/shadow.h"
#include "db/snapshot/problem_key.h"

namespace convtune::preload::shadow {

// The model's number of a data type; 0 if it has none.
uint8_t ModelType(int cudnn_type);

// The key of a graph of one convolution and, behind a forward one, bias,
// bias+relu or add+bias+relu, as PyTorch and ONNX Runtime build them. False for
// anything else.
bool MakeKey(const OperationShadow* const* operations, int count, snapshot::ProblemKey* key);

}  // namespace convtune::preload::shadow
