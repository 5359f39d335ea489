// WhyOutdated says why a tuning does not hold for the libraries that there are. Pure functions.
#pragma once

#include <map>
#include <string>

#include "proto/model/tuning/tuning.h"

namespace convtune::decision {

// LibraryVersions name the builds of the libraries that cuDNN loads by itself;
// empty: not known. A library is identified by its build, which is never the same
// for two versions. A measurement may hold for one build alone.
struct LibraryVersions {
  std::string cublaslt;
  std::string nvrtc;
  friend bool operator==(const LibraryVersions&, const LibraryVersions&) = default;
};

// Empty if all that `tuning` says holds for `now`; else why not. A candidate
// that ran and whose notes say that it is compiled at run time holds for one
// NVRTC, one that uses cuBLASLt for one cuBLASLt. What was not known of then is
// another, what is not known of now counts as the same. Of OBSERVED tunings
// nothing is claimed that could end.
std::string WhyOutdated(const Tuning& tuning, const LibraryVersions& now);

// The builds that there are, by the text of the environment that a device has.
using LibrariesByEnvironment = std::map<std::string, LibraryVersions>;
// The same for the tuning's environment. Empty where no device has it.
std::string WhyOutdated(const Tuning& tuning, const LibrariesByEnvironment& now);

}  // namespace convtune::decision
