// The names of all environment variables that a program of convtune reads.
#pragma once

#include <string>
#include <vector>

namespace convtune {

// A warning for each variable of this process's environment that begins with CONVTUNE_ or
// CONVTUNED_ and that no program reads; it names the known variable that is most like it. There is
// no warning for an empty variable, nor for those that Kubernetes sets for a service whose name
// begins with convtune.
std::vector<std::string> UnknownVariables();

}  // namespace convtune
