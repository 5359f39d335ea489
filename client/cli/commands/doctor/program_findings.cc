#include "client/cli/commands/doctor/findings.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace convtune::cli::commands::doctor {
namespace {

app::Severity SeverityOf(CudnnState state) {
  switch (state) {
    case CudnnState::kOlder:
    case CudnnState::kIncomplete:
    case CudnnState::kMixed:
      return app::Severity::kProblem;
    case CudnnState::kForJitAlone:
    case CudnnState::kUnknown:
      return app::Severity::kNotice;
    case CudnnState::kWhole:
      break;
  }
  return app::Severity::kFine;
}

// Whether the daemon has answers for programs with that cuDNN.
app::Finding ExamineEnvironmentOf(const LoadedCudnn& cudnn,
                                  const v1::ListEnvironmentsResponse& environments) {
  const bool full = HasPrecompiled(cudnn);
  const auto configuration =
      full ? v1::LIBRARY_CONFIGURATION_FULL : v1::LIBRARY_CONFIGURATION_GRAPH_JIT_ONLY;
  std::vector<std::string> current, past;
  for (const v1::Environment& environment : environments.environments()) {
    if (environment.cudnn_version() != cudnn.version ||
        environment.library_configuration() != configuration) {
      continue;
    }
    (environment.current() ? current : past).push_back(environment.name());
  }
  const std::string version =
      absl::StrCat("cuDNN ", cudnn.version, full ? "" : " without precompiled engines");
  if (!current.empty()) {
    return app::Fine(
        absl::StrCat("the daemon tunes for ", version, ": ", absl::StrJoin(current, ", ")));
  }
  return app::Notice(
      absl::StrCat("no device of the daemon has ", version,
                   past.empty()
                       ? ", and no tuning is for it: the program gets no answers"
                       : absl::StrCat("; tunings for it are of ", absl::StrJoin(past, ", "))),
      absl::StrCat("start the daemon with --cudnn-of ", cudnn.folder));
}

}  // namespace

app::Findings ExamineProgram(const std::string& program, const std::vector<LoadedCudnn>& found,
                             const v1::ListEnvironmentsResponse* environments) {
  if (found.empty()) {
    return {app::Notice(absl::StrCat(program, " has no package that loads cuDNN"),
                        "name the Python in which torch or onnxruntime-gpu is installed")};
  }
  app::Findings findings;
  std::set<std::string> said;  // two packages may load the same
  for (const LoadedCudnn& cudnn : found) {
    if (cudnn.folder.empty()) {
      findings.Notice(
          absl::StrCat(cudnn.by, " finds no libcudnn.so.9 by itself"),
          "say where it is with LD_LIBRARY_PATH; onnxruntime.preload_dlls() loads the wheel's");
      continue;
    }
    const CudnnExamination examined = ExamineCudnn(cudnn);
    findings.push_back({SeverityOf(examined.state), examined.what, examined.advice});
    if (environments == nullptr || cudnn.version.empty() || examined.state == CudnnState::kOlder ||
        !said.insert(cudnn.folder).second) {
      continue;
    }
    findings.push_back(ExamineEnvironmentOf(cudnn, *environments));
  }
  return findings;
}

}  // namespace convtune::cli::commands::doctor
