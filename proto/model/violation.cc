#include "proto/model/violation.h"

#include "proto/base/strings.h"

namespace convtune {

std::string ToString(const std::vector<Violation>& violations) {
  std::string out;
  for (const Violation& violation : violations) {
    AppendTo(&out, out.empty() ? "" : "; ", violation.field, ": ", violation.rule);
  }
  return out;
}

}  // namespace convtune
