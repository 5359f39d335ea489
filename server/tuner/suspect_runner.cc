#include "server/tuner/suspect_runner.h"

#include <optional>

#include "proto/base/status_macros.h"
#include "server/tuner/listing.h"

namespace convtune {

absl::Status RunAlone(const WorkSpec& spec, const CandidateId& suspect, WorkerClient* client) {
  const bool measures = client->measures();
  std::optional<int> found;
  worker::v1::OpenProblem open = OpenRequest(spec, measures);
  // The other API's listing takes time, and the legacy one runs what it lists.
  if (ApiOf(suspect) == Api::kGraph) {
    open.set_legacy_api(false);
  } else {
    open.set_graph_api(false);
  }
  RETURN_IF_ERROR(client
                      ->OpenProblem(open,
                                    [&](const worker::v1::ListedCandidate& listed) {
                                      const auto candidate = ReadListed(listed);
                                      if (candidate && candidate->id == suspect) {
                                        found = listed.index();
                                      }
                                    })
                      .status());
  if (!found) return client->CloseProblem();
  const int64_t budget_ms = absl::ToInt64Milliseconds(spec.options.time_budget);
  bool ready = false;
  worker::v1::Prepare prepare;
  prepare.add_indexes(*found);
  prepare.set_time_budget_ms(budget_ms);
  RETURN_IF_ERROR(
      client->Prepare(prepare, [&ready](const worker::v1::Prepared& p) { ready = p.ok(); })
          .status());
  if (ready && measures && spec.kind == WorkKind::kTune) {
    if (client->checks_results()) {
      worker::v1::Check check;
      check.add_indexes(*found);
      check.set_time_budget_ms(budget_ms);
      RETURN_IF_ERROR(client->Check(check, [](const worker::v1::Checked&) {}).status());
    }
    worker::v1::Measure measure;
    measure.add_indexes(*found);
    measure.set_warmups(1);
    measure.set_rounds(3);
    measure.set_time_budget_ms(budget_ms);
    RETURN_IF_ERROR(
        client
            ->Measure(
                measure, [](const worker::v1::Sample&) {}, [](const worker::v1::Conditions&) {})
            .status());
  }
  return client->CloseProblem();
}

}  // namespace convtune
