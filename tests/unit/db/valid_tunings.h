// Sample tunings of problems that there can be, for what judges problems.
#pragma once

#include <string>

#include "tests/unit/db/sample_tunings.h"

namespace convtune::db {

// SampleTuning(n), of a problem whose batch size is n.
inline Tuning ValidSampleTuning(int n) {
  Tuning tuning = SampleTuning(n);
  tuning.key.problem_text = "fwd,x=" + std::to_string(n) +
                            "x64x56x56,w=64x64x3x3,pad=1x1,stride=1x1,dilation=1x1,groups=1,"
                            "nhwc,f16,acc=f32";
  return tuning;
}

}  // namespace convtune::db
