#include "server/worker/warm_up.h"

#include <memory>
#include <vector>

#include "proto/base/status_macros.h"
#include "proto/model/problem/conv_problem.h"

namespace convtune::worker {
namespace {

constexpr char kProblem[] = "fwd,x=1x8x8x8,w=8x8x3x3,pad=1,nhwc,f16";

}  // namespace

absl::Status WarmUp(Backend* backend) {
  ASSIGN_OR_RETURN(const ConvProblem problem, ConvProblem::Parse(kProblem));
  ASSIGN_OR_RETURN(const std::unique_ptr<BackendProblem> opened, backend->Open(problem, 0));
  std::vector<CandidateId> ids;
  RETURN_IF_ERROR(opened
                      ->List(ListingOptions(),
                             [&ids](const Candidate& candidate) {
                               ids.push_back(candidate.id);
                               return true;
                             })
                      .status());
  // Not every engine can be built for every problem.
  for (const CandidateId& id : ids) {
    if (opened->Prepare(id).ok()) break;
  }
  return absl::OkStatus();
}

}  // namespace convtune::worker
