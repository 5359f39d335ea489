#include "client/cli/output/io.h"

namespace convtune::cli {

bool WantsColor(const Io& io, bool terminal) {
  return terminal && io.env("NO_COLOR").value_or("").empty() &&
         io.env("TERM").value_or("") != "dumb";
}

}  // namespace convtune::cli
