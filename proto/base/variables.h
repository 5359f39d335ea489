// The names of all environment variables that a program of convtune reads.
#pragma once

#include <string>
#include <vector>

namespace convtune {

// A warning for each variable of this process's environment that begins with CONVTUNE_ or
// CONVTUNED_ and that no program reads, with a known name that is like it. What Kubernetes sets for
// a service that is called convtune or convtuned is none, nor is an empty variable.
std::vector<std::string> UnknownVariables();

}  // namespace convtune
