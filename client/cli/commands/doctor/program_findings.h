// Findings about the cuDNN that a program will load, found out without running the program.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/app/address_check.h"
#include "convtune/v1/tuning_service.pb.h"

namespace convtune::cli::commands::doctor {

// A library that cuDNN opens when it needs it.
struct SubLibrary {
  std::string name;        // "libcudnn_engines_tensor_ir"
  std::string path;        // the file that the loader finds; empty: it finds no file
  std::string version;     // of the cuDNN that the file is of; empty: not known
  bool in_folder = false;  // the program's own cuDNN has one in its folder
};

// The cuDNN that a program, or a package of a Python, loads.
struct LoadedCudnn {
  std::string by;                     // "/venv/bin/python's torch"
  std::string folder;                 // of libcudnn.so.9; empty: the loader finds none
  std::string version;                // "9.20.0"; empty: not known
  std::vector<SubLibrary> libraries;  // all that cuDNN names
  std::string mend;  // the command that installs another cuDNN there; empty: none is known
};

// `program` is a file, a name that PATH has, or a venv's folder. Of a Python the packages that
// are built for cuDNN are looked at. Asks the loader of this machine, under this process's
// environment. INVALID_ARGUMENT names --program and the rule.
absl::StatusOr<std::vector<LoadedCudnn>> FindCudnn(const std::string& program);

// Pure. Without `environments` (the daemon did not give them) nothing is said of them.
std::vector<app::Finding> ExamineProgram(const std::string& program,
                                         const std::vector<LoadedCudnn>& found,
                                         const v1::ListEnvironmentsResponse* environments);

}  // namespace convtune::cli::commands::doctor
