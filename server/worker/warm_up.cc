#include "server/worker/warm_up.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "proto/base/status_macros.h"
#include "proto/model/conv_problem.h"
#include "server/worker/lanes.h"

namespace convtune {
namespace {

constexpr char kProblem[] = "fwd,x=1x8x8x8,w=8x8x3x3,pad=1,nhwc,f16";

}  // namespace

absl::Status WarmUp(Backend* backend) {
  ASSIGN_OR_RETURN(const ConvProblem problem, ConvProblem::Parse(kProblem));
  ASSIGN_OR_RETURN(const std::unique_ptr<BackendProblem> opened, backend->Open(problem, 0));
  ListingOptions options;
  options.lanes = backend->has_gpu() ? LaneCount(0) : 1;
  std::vector<CandidateId> ids;
  RETURN_IF_ERROR(opened
                      ->List(options,
                             [&ids](const Candidate& candidate) {
                               ids.push_back(candidate.id);
                               return true;
                             })
                      .status());
  // Not every engine can be built for every problem.
  const auto built = std::find_if(ids.begin(), ids.end(), [&](const CandidateId& id) {
    return opened->Prepare(id, /*lane=*/0).ok();
  });
  if (built == ids.end()) return absl::OkStatus();
  RunOnLanes(options.lanes, [&](int lane) {
    if (lane > 0) opened->Prepare(*built, lane).IgnoreError();
  });
  return absl::OkStatus();
}

}  // namespace convtune
